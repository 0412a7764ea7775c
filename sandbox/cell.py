"""The host's record of one running cell: its output, its clock, its open calls. Knows no process and no socket."""

import asyncio
import codecs
import io
from collections.abc import Callable

from sandbox.ending import Cause
from sandbox.escaping import escape_controls
from sandbox.events import ClockRead, Event, Finished, HostCall, Outcome, Output, Stream
from sandbox.protocol import Done

_HELD_BYTES = 64 << 20


class Capture:
    """One output stream of one cell: keeps the beginning, counts everything."""

    def __init__(self, *, kept_bytes: int) -> None:
        self._room = kept_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._kept = io.StringIO()
        self.total_bytes = 0

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """Take bytes; return the new text that was kept."""
        self.total_bytes += len(data)
        kept = data[: self._room]
        self._room -= len(kept)
        text = escape_controls(self._decoder.decode(kept, final=final))
        self._kept.write(text)
        return text

    @property
    def text(self) -> str:
        return self._kept.getvalue()


class ActiveClock:
    """Calls back when the active time is used up; while it is paused no time passes."""

    def __init__(self, seconds: float, expired: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._seconds = seconds
        self._left = seconds
        self._expired = expired
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0

    def resume(self) -> None:
        if self._timer is None:
            self._since = self._loop.time()
            self._timer = self._loop.call_later(max(0.0, self._left), self._expired)

    @property
    def used_ms(self) -> int:
        """The active time so far."""
        running = self._loop.time() - self._since if self._timer is not None else 0.0
        return int((self._seconds - self._left + running) * 1000)

    def pause(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left -= self._loop.time() - self._since


class _Unread:
    """Output that nobody has taken yet: what follows on the same stream joins it, so that many bytes are one event."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.text = io.StringIO()


class RunningCell:
    def __init__(self, number: int, *, output_bytes: int, clock: ActiveClock) -> None:
        self.number = number
        self.clock = clock
        self.captures: dict[Stream, Capture] = {
            "stdout": Capture(kept_bytes=output_bytes),
            "stderr": Capture(kept_bytes=output_bytes),
        }
        self.events: asyncio.Queue[HostCall | ClockRead | Finished | _Unread] = asyncio.Queue()
        self._last: _Unread | None = None
        # Host call id -> the guest's own id for it.
        self.open_calls: dict[int, int] = {}
        self._sizes: dict[int, int] = {}
        # Clear while the open calls hold more than the host wants to keep in memory for one cell.
        self.has_room = asyncio.Event()
        self.has_room.set()
        self.finished = asyncio.Event()
        # Calls that nobody declared, answered by the host itself.
        self.turned_away = 0
        self.times_read = 0
        self.is_timed_out = False
        self.is_interrupted = False

    def take_output(self, stream: Stream, data: bytes, *, final: bool = False) -> None:
        text = self.captures[stream].feed(data, final=final)
        if text:
            if self._last is None or self._last.stream != stream:
                self._last = _Unread(stream)
                self.events.put_nowait(self._last)
            self._last.text.write(text)

    def tell(self, event: HostCall | ClockRead | Finished) -> None:
        self._last = None
        self.events.put_nowait(event)

    async def next_event(self) -> Event:
        event = await self.events.get()
        if not isinstance(event, _Unread):
            return event
        if event is self._last:
            self._last = None
        return Output(stream=event.stream, text=event.text.getvalue())

    def open_call(self, call_id: int, guest_id: int, *, size: int) -> None:
        """Remember a call; the cell's clock stands still while any call waits for its answer."""
        self.open_calls[call_id] = guest_id
        self._sizes[call_id] = size
        self._judge_room()
        self.clock.pause()

    def _judge_room(self) -> None:
        if sum(self._sizes.values()) < _HELD_BYTES:
            self.has_room.set()
        else:
            self.has_room.clear()

    def close_call(self, call_id: int) -> int | None:
        """Forget a call and return the guest's id for it, if it was open."""
        guest_id = self.open_calls.pop(call_id, None)
        self._sizes.pop(call_id, None)
        self._judge_room()
        if guest_id is not None and not self.open_calls and not self.finished.is_set():
            self.clock.resume()
        return guest_id

    def finish(
        self,
        outcome: Outcome,
        *,
        done: Done | None = None,
        cause: Cause | None = None,
    ) -> None:
        """Say the last word, once. With a cause the session has ended, and its variables with it."""
        if self.finished.is_set():
            return
        self.clock.pause()
        self.open_calls.clear()
        self.has_room.set()
        for stream in self.captures:
            self.take_output(stream, b"", final=True)
        self.finished.set()
        stdout, stderr = self.captures["stdout"], self.captures["stderr"]
        ending = Finished(
            outcome=outcome,
            error=done.error if done else None,
            stdout=stdout.text,
            stderr=stderr.text,
            stdout_bytes=stdout.total_bytes,
            stderr_bytes=stderr.total_bytes,
            # A guest that was killed cannot say what it used: at most all of its time, as one that computes does.
            cpu_ms=done.cpu_ms if done else self.clock.used_ms,
            memory_bytes=done.memory_bytes if done else 0,
            state_lost=cause is not None,
            detail=cause.detail if cause else "",
            limit=cause.limit if cause else None,
            variables=done.variables if done else {},
        )
        self.tell(ending)
