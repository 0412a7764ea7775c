"""The host's record of one running cell: its output, its clock, its open calls. Knows no process and no socket."""

import asyncio
import codecs
from collections.abc import Callable

from sandbox.ending import Cause
from sandbox.escaping import escape_controls
from sandbox.events import Event, Finished, Outcome, Output, Stream
from sandbox.protocol import Done


class Capture:
    """One output stream of one cell: keeps the beginning, counts everything."""

    def __init__(self, *, kept_bytes: int) -> None:
        self._room = kept_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._pieces: list[str] = []
        self.total_bytes = 0

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """Take bytes; return the new text that was kept."""
        self.total_bytes += len(data)
        kept = data[: self._room]
        self._room -= len(kept)
        text = escape_controls(self._decoder.decode(kept, final=final))
        self._pieces.append(text)
        return text

    @property
    def text(self) -> str:
        return "".join(self._pieces)


class ActiveClock:
    """Calls back when the active time is used up; while it is paused no time passes."""

    def __init__(self, seconds: float, expired: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = seconds
        self._expired = expired
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0

    def resume(self) -> None:
        if self._timer is None:
            self._since = self._loop.time()
            self._timer = self._loop.call_later(max(0.0, self._left), self._expired)

    def pause(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left -= self._loop.time() - self._since


class RunningCell:
    def __init__(self, number: int, *, output_bytes: int, clock: ActiveClock) -> None:
        self.number = number
        self.clock = clock
        self.captures: dict[Stream, Capture] = {
            "stdout": Capture(kept_bytes=output_bytes),
            "stderr": Capture(kept_bytes=output_bytes),
        }
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        # Host call id -> the guest's own id for it.
        self.open_calls: dict[int, int] = {}
        self.finished = asyncio.Event()
        self.is_timed_out = False
        self.is_interrupted = False

    def take_output(self, stream: Stream, data: bytes, *, final: bool = False) -> None:
        text = self.captures[stream].feed(data, final=final)
        if text:
            self.events.put_nowait(Output(stream=stream, text=text))

    def open_call(self, call_id: int, guest_id: int) -> None:
        """Remember a call; the cell's clock stands still while any call waits for its answer."""
        self.open_calls[call_id] = guest_id
        self.clock.pause()

    def close_call(self, call_id: int) -> int | None:
        """Forget a call and return the guest's id for it, if it was open."""
        guest_id = self.open_calls.pop(call_id, None)
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
            cpu_ms=done.cpu_ms if done else 0,
            memory_bytes=done.memory_bytes if done else 0,
            state_lost=cause is not None,
            detail=cause.detail if cause else "",
            limit=cause.limit if cause else None,
        )
        self.events.put_nowait(ending)
