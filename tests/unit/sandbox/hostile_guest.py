"""A guest that is nothing but wires: the test says whatever it likes on them."""

import asyncio
import contextlib
import os
import socket
from pathlib import Path

from sandbox import Collected
from sandbox.backends.port import Ending
from sandbox.policy import ArtifactLimits


class HostileGuest:
    """Holds both ends; `speak` is what the untrusted side sends, `heard` what it was told."""

    layers = ("none",)
    init_pid = 0

    def __init__(self) -> None:
        self.channel, self.other_end = socket.socketpair()
        self.other_end.setblocking(False)
        self.stdout, self.writes_stdout = os.pipe()
        self.stderr, self.writes_stderr = os.pipe()
        self.gone, self._dies = os.pipe()
        self.heard = bytearray()
        self.interrupts = 0

    def interrupt(self) -> None:
        self.interrupts += 1

    def kill(self) -> None:
        """Die: from now on `gone` is readable."""
        if self._dies >= 0:
            os.close(self._dies)
            self._dies = -1

    async def ending(self) -> Ending:
        return Ending(exit_code=0)

    def collect(self, into: Path, limits: ArtifactLimits) -> Collected:
        return Collected()

    def release(self) -> None:
        self.kill()
        self.channel.close()
        self._close("stdout", "stderr", "gone")

    def bury(self) -> None:
        """Close the untrusted side's ends too."""
        self.other_end.close()
        self._close("writes_stdout", "writes_stderr")

    def _close(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) >= 0:
                os.close(getattr(self, name))
                setattr(self, name, -1)

    async def speak(self, data: bytes) -> None:
        """Send, however the host reads; what it sends meanwhile is kept."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            await asyncio.wait_for(loop.sock_sendall(self.other_end, data), 5)

    def listen(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.other_end.recv(1 << 16):
                self.heard += data
