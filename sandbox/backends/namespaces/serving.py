"""What every zygote does: take requests until the worker is gone, reap what has ended, end what is left. Knows no confinement."""

import contextlib
import os
import select
import signal
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Collection

from sandbox.backends.namespaces import kernel

_STOP_SECONDS = 2.0


class Serving(ABC):
    """The loop of a zygote. Whoever makes sandboxes says how, and what is to be done when one has ended."""

    @abstractmethod
    def take_request(self, message: bytes, descriptors: list[int]) -> None:
        """Carry out one request; its descriptors are closed afterwards."""

    @abstractmethod
    def children(self) -> Collection[int]:
        """Process ids of the sandboxes that live."""

    @abstractmethod
    def bury(self, child: int, status: int) -> None:
        """A child has ended with this wait status."""

    def tidy(self) -> bool:
        """Do what could not be done at once; say whether some of it is left."""
        return False

    def prepare_next(self) -> None:  # noqa: B027 - nothing, unless there is something
        """Make ready, between requests, what the next sandbox will need."""

    def serve(self, control: socket.socket, wakeup: int) -> None:
        """Answer requests until the control socket closes or the worker's death is signalled."""
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
        poller = select.poll()
        poller.register(control, select.POLLIN)
        poller.register(wakeup, select.POLLIN)
        is_wanted, is_untidy = True, False
        while is_wanted:
            self.prepare_next()
            ready = {fd for fd, _ in poller.poll(2 if is_untidy else None)}
            if wakeup in ready:
                is_wanted = signal.SIGTERM not in os.read(wakeup, 4096)
            is_untidy = self._reap()
            if is_wanted and control.fileno() in ready:
                is_wanted = self._receive(control)
        self._end_children()

    def _receive(self, control: socket.socket) -> bool:
        message, descriptors, _, _ = socket.recv_fds(control, 1 << 16, 8)
        if message:
            self.take_request(message, descriptors)
        for fd in descriptors:
            os.close(fd)
        return bool(message)

    def _reap(self) -> bool:
        """Bury all who have ended; say whether something of them is left."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self.bury(*ended)
        return self.tidy()

    def _end_children(self) -> None:
        """Kill every sandbox and clean up after it; what takes too long dies with the zygote."""
        deadline = time.monotonic() + _STOP_SECONDS
        for child in self.children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        while (self._reap() or self.children()) and time.monotonic() < deadline:
            time.sleep(0.002)
