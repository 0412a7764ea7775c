"""One thread per session between the container's attached pipe and the wires that a session has. Knows no engine.

In the order in which the relay sent them, and never more than one read ahead of what the session takes.
"""

import contextlib
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from sandbox.backends.docker.attached import Attached
from sandbox.backends.docker.inside import records

_READ_BYTES = 1 << 16
_QUEUED_BYTES = 1 << 18
_PATIENCE_SECONDS = 2.0
_END = memoryview(b"")  # of a collection, told apart by identity
_PIECES = frozenset({records.FILE, records.DATA, records.SKIPPED, records.COLLECTED})


class Pump:
    """`run` returns when the container's pipe is closed, or when a kill does not show and `on_stuck` gives up on it."""

    def __init__(
        self, attached: Attached, *, on_exit: Callable[[int], None], on_stuck: Callable[[], bool]
    ) -> None:
        self.channel, self._channel = socket.socketpair()
        self.stdout, self._stdout = os.pipe()
        self.stderr, self._stderr = os.pipe()
        self._attached = attached
        self._on_exit = on_exit
        self._on_stuck = on_stuck
        self._wake, self._waker = os.pipe()
        self._incoming: deque[tuple[int, memoryview]] = deque()
        self._wires = {
            records.CHANNEL: self._channel.fileno(),
            records.STDOUT: self._stdout,
            records.STDERR: self._stderr,
        }
        self._outgoing = bytearray()
        self._window = records.WINDOW_BYTES
        self._lock = threading.Lock()
        self._orders: list[bytes] = []
        self._is_discarding = False
        self._stuck_at: float | None = None
        self._collection = -1
        self._is_collecting = False
        self._listens = True
        self.violation = ""
        for fd in (self._stdout, self._stderr, self._wake, self._waker):
            os.set_blocking(fd, False)
        self._channel.setblocking(False)
        attached.link.setblocking(False)

    # ---------------------------------------------------------------- from any thread

    def order(self, kind: bytes, data: bytes = b"") -> None:
        """Send an order to the relay; one that is gone takes none."""
        with self._lock:
            if self._waker >= 0:
                self._orders.append(records.encode(kind, data))
                self._ring()

    def discard(self) -> None:
        """Take everything the container still sends and give it to nobody: an engine cannot kill what it cannot empty."""
        with self._lock:
            if self._waker >= 0 and not self._is_discarding:
                self._is_discarding = True
                self._ring()

    def collect(self) -> int:
        """Return a descriptor from which the records of one collection can be read; it is empty at the session's end."""
        ours, theirs = os.pipe()
        os.set_blocking(theirs, False)
        with self._lock:
            if self._waker < 0 or self._is_discarding or self._is_collecting:
                os.close(theirs)
            else:
                self._collection, self._is_collecting = theirs, True
        return ours

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._waker, b"!")

    # ---------------------------------------------------------------- the thread

    def run(self) -> None:
        try:
            while self._turn():
                pass
        except (EOFError, OSError):
            pass
        except records.RecordError as error:
            self.violation = str(error)
        self._close()

    def _turn(self) -> bool:
        poller = select.poll()
        link, channel = self._attached.link.fileno(), self._channel.fileno()
        poller.register(self._wake, select.POLLIN)
        head = self._incoming[0][0] if self._incoming else -1
        wants = (0 if self._incoming else select.POLLIN) | (select.POLLOUT if self._outgoing else 0)
        if wants:  # else a closed link would wake us again and again while the session takes its time
            poller.register(link, wants)
        asks = select.POLLIN if self._listens and self._may_send else 0
        asks |= select.POLLOUT if head == channel else 0
        if asks:
            poller.register(channel, asks)
        if head not in (-1, channel):
            poller.register(head, select.POLLOUT)
        ready = dict(poller.poll(self._patience()))
        if self._wake in ready:
            self._take_orders()
        if ready.get(channel, 0) & (select.POLLIN | select.POLLHUP) and asks & select.POLLIN:
            self._take_from_session()
        if self._incoming:
            self._deliver()
        elif ready.get(link, 0) & ~select.POLLOUT:
            self._receive()
        if self._outgoing:
            with contextlib.suppress(BlockingIOError):
                del self._outgoing[: self._attached.link.send(self._outgoing)]
        return True

    def _patience(self) -> float | None:
        """Return how long to wait for something to happen; ask for help when a kill does not show."""
        if not self._is_discarding:
            return None
        now = time.monotonic()
        if self._stuck_at is None:
            self._stuck_at = now + _PATIENCE_SECONDS
        elif now >= self._stuck_at:
            self._stuck_at = now + _PATIENCE_SECONDS
            if self._on_stuck():
                raise EOFError
        return max(1.0, (self._stuck_at - now) * 1000)

    def _take_orders(self) -> None:
        os.read(self._wake, 4096)
        with self._lock:
            orders, self._orders = self._orders, []
        for order in orders:
            self._outgoing += order
        if self._is_discarding:
            self._incoming.clear()
            self._end_collection()

    @property
    def _may_send(self) -> bool:
        return self._window > 0 and len(self._outgoing) < _QUEUED_BYTES

    def _take_from_session(self) -> None:
        try:
            data = self._channel.recv(min(_READ_BYTES, self._window))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._window -= len(data)
            self._outgoing += records.encode(records.CHANNEL, data)
        else:
            self._listens = False  # the session has closed its end; a kill follows

    def _receive(self) -> None:
        for kind, body in self._attached.receive():
            if not self._is_discarding or kind == records.EXIT:
                self._take(kind, body)
        self._deliver()

    def _take(self, kind: bytes, body: bytes) -> None:
        if kind in self._wires:
            self._incoming.append((self._wires[kind], memoryview(body)))
        elif kind == records.TAKEN and len(body) == 4:
            self._window += int.from_bytes(body, "big")
            if self._window > records.WINDOW_BYTES:
                raise records.RecordError("the relay took more than it was sent")
        elif kind == records.EXIT and len(body) == 4:
            self._on_exit(int.from_bytes(body, "big"))
            self._outgoing += records.encode(records.LEAVE)
        elif kind in _PIECES and self._is_collecting:
            if self._collection >= 0:
                self._incoming.append((self._collection, memoryview(records.encode(kind, body))))
            if kind == records.COLLECTED:
                self._incoming.append((self._collection, _END))
        else:
            raise records.RecordError(f"the relay sent a record {kind!r} that nobody asked for")

    def _deliver(self) -> None:
        """Hand over what is due, in order, as far as it is taken now."""
        while self._incoming:
            fd, data = self._incoming.popleft()
            if data is _END:
                self._end_collection()
                self._is_collecting = False
                continue
            try:
                written = os.write(fd, data) if data else 0
            except BlockingIOError:
                self._incoming.appendleft((fd, data))
                return
            except OSError:
                if fd == self._collection:
                    self._end_collection()
                    self._incoming = deque(
                        item for item in self._incoming if item[0] != fd or item[1] is _END
                    )
                continue  # the session has closed its end
            if written < len(data):
                self._incoming.appendleft((fd, data[written:]))
                return

    def _end_collection(self) -> None:
        if self._collection >= 0:
            fd, self._collection = self._collection, -1
            os.close(fd)

    def _close(self) -> None:
        with self._lock:
            self._waker, waker = -1, self._waker
            self._end_collection()
        self._attached.link.close()
        self._channel.close()
        for fd in (self._stdout, self._stderr, self._wake, waker):
            os.close(fd)
