"""What is at stake while an attack runs, and the detectors that look at it from the host."""

import os
import secrets
import signal
import socket
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from sandbox import Event, Finished, HostCall, KillReport, Mount, Output

Seconds = float


@dataclass
class Record:
    """The host's own record of one attack."""

    declared: frozenset[str]
    events: list[Event] = field(default_factory=list)
    calls: list[HostCall] = field(default_factory=list)
    answers: dict[int, object] = field(default_factory=dict)
    endings: list[Finished] = field(default_factory=list)
    artifacts: bytes = b""
    seconds: Seconds = 0.0
    kill: KillReport | None = None
    #: What the host itself suffered: an exception out of its session, or no answer in time.
    broken: str = ""
    #: What a second, innocent session printed afterwards.
    neighbour: str = ""


class Scene:
    """Canary, environment and heap secrets, listeners, evidence, and a mark for processes: all new for each attack."""

    def __init__(self) -> None:
        self.secret, self.mark = "S3CR3T" + secrets.token_hex(12), "atk" + secrets.token_hex(4)
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="scene-")))
        directory.chmod(0o755)
        self.canary = directory / "canary.txt"
        self.canary.write_text(self.secret)
        # The attacked evidence is the attackers' own to change, were it not for the sandbox.
        self.evidence = directory / "evidence.txt"
        self.evidence.write_text("as it was")
        self.evidence.chmod(0o666)
        self.before = self.evidence.stat()
        os.environ["ATTACK_SECRET"] = os.environ["HEAP_SECRET"] = self.secret
        self.heap = [self.secret * 2 for _ in range(64)]
        self.listeners = {
            "tcp": self._listen(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "tcp6": self._listen(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
            "udp": self._listen(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "abstract": self._listen(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self.mark}"),
            "abstract_dgram": self._listen(socket.AF_UNIX, socket.SOCK_DGRAM, f"\0{self.mark}d"),
            "path": self._listen(socket.AF_UNIX, socket.SOCK_STREAM, str(directory / "s")),
            "path_dgram": self._listen(socket.AF_UNIX, socket.SOCK_DGRAM, str(directory / "d")),
        }
        for name in "sd":
            (directory / name).chmod(0o777)
        # Evidence is whatever lies there: a folder of logs may hold the socket of the service that writes them.
        self.shared = directory / "shared"
        self.shared.mkdir()
        self.shared.chmod(0o755)
        self.listeners["in evidence"] = self._listen(
            socket.AF_UNIX, socket.SOCK_STREAM, str(self.shared / "s")
        )
        self.listeners["dgram in evidence"] = self._listen(
            socket.AF_UNIX, socket.SOCK_DGRAM, str(self.shared / "d")
        )
        for name in "sd":
            (self.shared / name).chmod(0o777)
        return self

    def _listen(self, family: int, kind: int, address: object) -> socket.socket | None:
        try:
            link = self._stack.enter_context(socket.socket(family, kind))
            link.bind(address)
            if kind == socket.SOCK_STREAM:
                link.listen(8)
        except OSError:
            return None
        link.setblocking(False)
        return link

    def __exit__(self, *_: object) -> None:
        for name in ("ATTACK_SECRET", "HEAP_SECRET"):
            os.environ.pop(name, None)
        for pid in self._marked():
            os.kill(pid, signal.SIGKILL)
        self._stack.close()

    @property
    def mounts(self) -> tuple[Mount, ...]:
        return (
            Mount(source=str(self.evidence), target="evidence.txt"),
            Mount(source=str(self.shared), target="shared"),
        )

    def facts(self) -> str:
        """What the attacker is told: all that it could know of the host, but never the secret."""
        port = {
            name: link.getsockname()[1]
            for name, link in self.listeners.items()
            if link and link.family != socket.AF_UNIX
        }
        return (
            f"CANARY = {str(self.canary)!r}\nMARK = {self.mark!r}\nPORT = {port!r}\nHOST = {os.getpid()}\n"
            f"SOCKETS = {str(self.canary.parent)!r}\nE = evidence._root + '/evidence.txt'\nW = os.getcwd()\n"
        )

    # ------------------------------------------------------------ detectors: what they return was seen

    def leaked(self, record: Record) -> str:
        said = [event.text for event in record.events if isinstance(event, Output)]
        said += [str(call.payload) for call in record.calls]
        said += [str(ending) for ending in record.endings]
        return (
            "the secret came out" if self.secret in "".join(said) + record.artifacts.decode("latin-1") else ""
        )

    def reached(self, _: Record) -> str:
        heard = []
        for name, link in self.listeners.items():
            try:
                if link is not None:
                    link.accept()[0].close() if link.type == socket.SOCK_STREAM else link.recv(16)
                    heard.append(name)
            except BlockingIOError:
                continue
        return f"listeners heard something: {heard}" if heard else ""

    def left(self, record: Record) -> str:
        deadline = time.monotonic() + 0.5
        while (found := self._marked()) and time.monotonic() < deadline:
            time.sleep(0.05)
        survivors = record.kill.survivors if record.kill else ()
        return f"processes are left: {found} {survivors}" if found or survivors else ""

    def _marked(self) -> list[int]:
        """Processes with a thread that the attack gave its mark as a name."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    names = {(task / "comm").read_text().strip() for task in (entry / "task").iterdir()}
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                except OSError:
                    continue
                if self.mark in names and state not in "ZX":
                    found.append(int(entry.name))
        return found

    def forged(self, record: Record) -> str:
        """The record holds what the host was asked and said, each call once, none undeclared."""
        ids = [call.call_id for call in record.calls]
        if len(set(ids)) != len(ids):
            return f"a call stands twice in the record: {ids}"
        if names := {call.name for call in record.calls} - record.declared:
            return f"undeclared calls were let through: {names}"
        lies = {i: value for i, value in record.answers.items() if value != f"true answer {i}"}
        return f"answers that the host never gave: {lies}" if lies else ""

    def exceeded(self, record: Record) -> str:
        """Code says `over` only when it had more than its limit; the rest is for the host to see."""
        text = "".join(ending.stdout for ending in record.endings)
        return "a limit was exceeded: " + text[-200:] if "over the limit" in text else ""

    def down(self, record: Record) -> str:
        if record.broken:
            return record.broken
        odd = [e.outcome for e in record.endings if e.state_lost and not e.detail]
        if odd or not record.endings:
            return f"a session ended without a reason: {odd}"
        return f"the host was held for {record.seconds:.1f} s" if record.seconds > 20 else ""

    def tampered(self, _: Record) -> str:
        now = self.evidence.stat()
        same = (now.st_mode, now.st_nlink, now.st_size, now.st_mtime_ns) == (
            self.before.st_mode,
            self.before.st_nlink,
            self.before.st_size,
            self.before.st_mtime_ns,
        )
        return "" if same and self.evidence.read_text() == "as it was" else "the evidence was changed"

    def influenced(self, record: Record) -> str:
        return f"the next session is not clean: {record.neighbour}" if "poison" in record.neighbour else ""

    def escaped(self, record: Record) -> str:
        """Control characters in anything that a terminal, a log or a model would be shown."""
        texts = [e.text for e in record.events if isinstance(e, Output)]
        for ending in record.endings:
            texts += [ending.stdout, ending.stderr, ending.detail]
            texts += [ending.error.type, ending.error.message, ending.error.traceback] if ending.error else []
        texts += [call.name for call in record.calls]
        bad = [t for t in texts if any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in t)]
        return f"control characters came out: {bad[0][:80]!r}" if bad else ""


DETECTORS = ("leaked", "reached", "left", "forged", "exceeded", "down", "tampered", "influenced", "escaped")
