"""The clock of the cells: true time, every reading kept, so that a repeated cell reads the same times again.

A reading costs no call of the host. What was read is sent ahead of whatever the cell sends next, and a cell that is
repeated is served its recorded readings first. Readings are kept as runs: a run has a first value in nanoseconds and a
number of readings, each one nanosecond after the other. The first runs of a cell are single readings; later ones last
for a small share of the time since the cell began: it may look at the clock as often as it likes, the record stays short.
"""

import asyncio
import ctypes
import datetime as dt
import gc
import time
from collections.abc import Callable
from threading import Lock
from typing import Any

#: Readings of a cell that are kept one by one, and the share of its time (1/512) that one run lasts after them.
_SINGLE_RUNS = 1024
_SHARE_BITS = 9
#: What the clocks without a date count from: small enough that a float of seconds keeps its nanoseconds.
_MONOTONIC_ZERO = 1_700_000_000 * 10**9
_BILLION = 10**9

_real_time_ns = time.time_ns
_real_monotonic = time.monotonic
_real_monotonic_ns = time.monotonic_ns


class CellClock:
    """Nanoseconds since the epoch, never less than before. Between cells it reads true time and keeps nothing."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_running = False
        self._recorded: list[int] = []
        self._served = 0
        #: Runs that were not sent yet: differences of first values, each with its number of readings.
        self._log: list[int] = []
        self._first = 0
        self._reads = 0
        self._runs = 0
        self._last = 0
        self._begun = (0, 0)
        self._next = 0

    def begin(self, recorded: list[int]) -> None:
        """A cell begins; `recorded` is what it read before, when it is a repeated one."""
        with self._lock:
            self._recorded, self._next, self._served = list(recorded), 0, 0
            self._log, self._first, self._reads, self._runs = [], 0, 0, 0
            self._begun = (_real_time_ns(), _real_monotonic_ns())
            self._is_running = True

    def end(self) -> list[int]:
        """A cell ends: what it read since it was last asked."""
        read = self.take()
        self._is_running = False
        return read

    def take(self) -> list[int]:
        """What was read since this was last asked; a run under way ends with it."""
        with self._lock:
            self._close_run()
            read, self._log = self._log, []
        return read

    def read(self) -> int:
        if not self._is_running:
            return _real_time_ns()
        with self._lock:
            recorded = self._recorded_reading()
            self._last = recorded if recorded is not None else self._true_reading()
            return self._last

    def _recorded_reading(self) -> int | None:
        if self._next >= len(self._recorded):
            return None
        difference, reads = self._recorded[self._next : self._next + 2]
        reading = self._first + difference + self._served
        self._served += 1
        if self._served >= reads:
            self._first += difference
            self._next += 2
            self._served = 0
        return reading

    def _true_reading(self) -> int:
        wall, monotonic = self._begun
        now = max(wall + _real_monotonic_ns() - monotonic, self._last + 1)
        if self._runs > _SINGLE_RUNS and self._reads and now - self._first < (now - wall) >> _SHARE_BITS:
            self._reads += 1
            return self._first + self._reads - 1
        self._close_run()
        self._log += (now - self._first, 1)
        self._first, self._reads = now, 1
        self._runs += 1
        return now

    def _close_run(self) -> None:
        if self._reads:
            self._log[-1] = self._reads
            self._reads = 0


def install(clock: CellClock) -> None:
    """Make the clocks of the standard library read this one; once is enough, also for forks."""
    # Waiting is no reading: an event loop looks at the clock as often as it happens to turn.
    setattr(asyncio.base_events.BaseEventLoop, "time", lambda _loop: _real_monotonic())  # noqa: B010
    for name, function in _readers(clock).items():
        setattr(time, name, function)
    _install_dates(clock)


def _readers(clock: CellClock) -> dict[str, Callable[..., Any]]:
    read = clock.read

    def since_epoch() -> float:
        return read() / _BILLION

    def monotonic_ns() -> int:
        return read() - _MONOTONIC_ZERO

    def monotonic() -> float:
        return (read() - _MONOTONIC_ZERO) / _BILLION

    def of_now(convert: Callable[..., Any]) -> Callable[..., Any]:
        return lambda seconds=None: convert(since_epoch() if seconds is None else seconds)

    localtime, asctime, strftime = time.localtime, time.asctime, time.strftime
    return {
        "time": since_epoch,
        "time_ns": read,
        "monotonic": monotonic,
        "monotonic_ns": monotonic_ns,
        "perf_counter": monotonic,
        "perf_counter_ns": monotonic_ns,
        "localtime": of_now(localtime),
        "gmtime": of_now(time.gmtime),
        "ctime": of_now(time.ctime),
        "asctime": lambda t=None: asctime(localtime(since_epoch()) if t is None else t),
        "strftime": lambda form, t=None: strftime(form, localtime(since_epoch()) if t is None else t),
    }


def _install_dates(clock: CellClock) -> None:
    """datetime.now and utcnow; today and date.today ask time.time already."""

    def now(cls: type[dt.datetime], tz: dt.tzinfo | None = None) -> dt.datetime:
        return cls.fromtimestamp(clock.read() / _BILLION, tz)

    def utcnow(cls: type[dt.datetime]) -> dt.datetime:
        return cls.fromtimestamp(clock.read() / _BILLION, dt.UTC).replace(tzinfo=None)

    # A subclass in its place would not be the type of dates that come from elsewhere; so the type itself learns it.
    names: Any = gc.get_referents(dt.datetime.__dict__)[0]
    names["now"], names["utcnow"] = classmethod(now), classmethod(utcnow)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(dt.datetime))
