"""Host calls from inside a cell: ask the host by name, wait for its answer. Knows no call by name.

Every call belongs to the cell whose code made it, wherever it runs: threads, pools and tasks carry the
cell along in a context variable, so that a call of an earlier cell is never mistaken for one of this cell.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import ContextVar
from threading import Lock

from sandbox.guest.frames import FrameError, JsonObject, JsonValue


class CellEnd(BaseException):
    """Raise it to end the current cell with the outcome "ended"."""


class HostCallError(Exception):
    """The host refused a call. `detail` holds what it said beyond the message."""

    def __init__(self, message: str, *, detail: JsonValue = None) -> None:
        super().__init__(message)
        self.detail = detail


class SubcallError(HostCallError):
    """A model subcall failed or its answer did not fit its type."""


class BudgetExceeded(HostCallError):
    """The budget does not allow this call."""


class SubmitRejected(HostCallError):
    """The submitted fields do not fit the output schema."""


class NetworkRefused(HostCallError, OSError):
    """The host did not make a request, or did not take its answer."""


class NobodyAnswered(HostCallError, TimeoutError):
    """No person answered in the time that was given."""


REFUSALS: dict[str, type[HostCallError]] = {
    kind.__name__: kind
    for kind in (HostCallError, SubcallError, BudgetExceeded, SubmitRejected, NetworkRefused, NobodyAnswered)
}

current_cell: ContextVar[int | None] = ContextVar("current_cell", default=None)

Answer = Future[JsonValue]


class Switchboard:
    """Matches answers to calls. One per session; the channel's reader thread settles what cells wait for."""

    def __init__(self, send: Callable[[JsonObject], None], *, in_flight: int) -> None:
        self._send = send
        self._in_flight = in_flight
        self._lock = Lock()
        self._owner = os.getpid()
        self._cell: int | None = None
        self._last_id = 0
        self._pending: dict[int, Answer] = {}
        self._waiting: deque[JsonObject] = deque()

    def begin(self, cell: int) -> None:
        with self._lock:
            self._cell = cell

    def end(self) -> None:
        """Fail what the ended cell still waits for: its answers will not come."""
        with self._lock:
            orphans = list(self._pending.values())
            self._pending.clear()
            self._waiting.clear()
            self._cell = None
        for answer in orphans:
            answer.set_exception(HostCallError("the cell ended before the host answered"))

    def place(self, name: str, payload: JsonObject) -> Answer:
        """Send a call, or queue it while as many as allowed are in flight."""
        if os.getpid() != self._owner:
            raise HostCallError(
                "host calls are refused in forked child processes: call from the cell's own process"
            )
        answer: Answer = Future()
        answer.set_running_or_notify_cancel()
        with self._lock:
            cell = current_cell.get()
            if cell is None or cell != self._cell:
                raise HostCallError(
                    "this code belongs to a cell that has ended: host calls work only while it runs"
                )
            self._last_id += 1
            frame: JsonObject = {
                "t": "call",
                "cell": cell,
                "id": self._last_id,
                "name": name,
                "payload": payload,
            }
            if len(self._pending) - len(self._waiting) >= self._in_flight:
                self._waiting.append(frame)
            else:
                self._dispatch(frame)
            self._pending[self._last_id] = answer
        return answer

    def _dispatch(self, frame: JsonObject) -> None:
        try:
            self._send(frame)
        except FrameError as error:
            raise HostCallError(f"host call {frame['name']!r} cannot be sent: {error}") from None

    def settle(self, call_id: int, *, value: JsonValue = None, refusal: HostCallError | None = None) -> None:
        """Hand an answer to whoever waits for it; an answer nobody waits for is dropped."""
        with self._lock:
            answer = self._pending.pop(call_id, None)
        if answer is not None and refusal is not None:
            answer.set_exception(refusal)
        elif answer is not None:
            answer.set_result(value)
        self._dispatch_next()

    def _dispatch_next(self) -> None:
        with self._lock:
            # Another thread may have placed a call into the slot that was just freed.
            if not self._waiting or len(self._pending) - len(self._waiting) >= self._in_flight:
                return
            frame = self._waiting.popleft()
            try:
                self._dispatch(frame)
            except HostCallError as refusal:
                call_id = frame["id"]
                assert isinstance(call_id, int)
                failed = self._pending.pop(call_id)
                failed.set_exception(refusal)


_connected: list[Switchboard] = []


def connect(switchboard: Switchboard) -> None:
    """Make this switchboard the one that host_call uses."""
    _connected[:] = [switchboard]


def _switchboard() -> Switchboard:
    if not _connected:
        raise HostCallError("no host is connected")
    return _connected[0]


def host_call(name: str, payload: JsonObject) -> JsonValue:
    """Ask the host and wait. Thread-safe; several threads may wait at once."""
    return _switchboard().place(name, payload).result()


async def host_call_async(name: str, payload: JsonObject) -> JsonValue:
    """Ask the host without blocking the event loop: `asyncio.gather` runs calls side by side."""
    return await asyncio.wrap_future(_switchboard().place(name, payload))
