"""Why a session ended: the first cause counts, and the kernel's word on how the guest died."""

import asyncio
import json
import signal
import socket
from dataclasses import dataclass

from sandbox.backends.port import Ending
from sandbox.events import Limit, Outcome

_REPORT_SECONDS = 2.0


@dataclass
class Cause:
    """The first reason given stays: what follows from it is not another reason."""

    outcome: Outcome = "ok"
    detail: str = ""
    limit: Limit | None = None
    is_final: bool = False

    def set(self, outcome: Outcome, detail: str, *, limit: Limit | None = None) -> None:
        if not self.is_final:
            self.outcome, self.detail, self.limit, self.is_final = outcome, detail, limit, True


async def read_ending(report: socket.socket) -> Ending:
    """Wait for the outer process's last word; it has cleaned up by then. A killed one says nothing."""
    report.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_REPORT_SECONDS):
            while text := await loop.sock_recv(report, 1 << 16):
                message = json.loads(text)
                if "exit" in message:
                    return Ending(
                        exit_code=message["exit"],
                        oom_kills=message.get("oom_kills", 0),
                        survivors=tuple(message.get("survivors", ())),
                    )
    except (TimeoutError, ConnectionError):
        pass
    return Ending()


def limit_of(ending: Ending) -> Limit | None:
    """The limit at which the kernel killed the guest, if that is how it died."""
    if ending.oom_kills:
        return "memory"
    return "cpu" if ending.exit_code == 128 + signal.SIGXCPU else None


def describe_exit(ending: Ending) -> str:
    if ending.reason:
        return ending.reason
    if ending.oom_kills:
        return "the kernel killed the code for exceeding the memory limit"
    code = ending.exit_code
    if code is None:
        return "the sandbox was killed from outside"
    if code > 128 and code - 128 in set(signal.Signals):
        name = signal.Signals(code - 128).name
        hint = {"SIGXCPU": ": the CPU limit", "SIGSYS": ": a forbidden kind of system call"}.get(name, "")
        return f"the interpreter was killed by {name}{hint}"
    return f"the interpreter exited with status {code}"
