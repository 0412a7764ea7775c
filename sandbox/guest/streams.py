"""Standard output and error of cells, and how threads and pools carry along the cell that started them."""

import contextvars
import functools
import io
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from sandbox.guest.calls import current_cell


class RunningCell:
    """Which cell runs now; None between cells."""

    number: int | None = None


class CellStream(io.TextIOWrapper):
    """Text to a pipe of the host. What an earlier cell's leftover code writes is dropped, never mixed in."""

    def __init__(self, fd: int, *, running: RunningCell) -> None:
        super().__init__(
            os.fdopen(fd, "wb", buffering=1 << 16, closefd=False), encoding="utf-8", errors="backslashreplace"
        )
        self._running = running

    def write(self, text: str, /) -> int:
        # A forked child of a cell shares its context; code without any context is nobody's.
        if current_cell.get() is None or current_cell.get() != self._running.number:
            return len(text)
        written = super().write(text)
        if "\n" in text:
            self.flush()
        return written

    def close(self) -> None:
        """Stay open: a cell that closes its output would silence every later cell."""


def carry_cell_into_threads() -> None:
    """Start threads and pool work in the context of the code that asked for them. Once is enough, also for forks."""
    if hasattr(threading.Thread.start, "__wrapped__"):
        return
    start: Callable[[threading.Thread], None] = threading.Thread.start
    submit: Callable[..., Future[Any]] = ThreadPoolExecutor.submit

    def start_in_context(thread: threading.Thread) -> None:
        context = contextvars.copy_context()
        run = thread.run
        thread.run = lambda: context.run(run)  # type: ignore[method-assign]
        start(thread)

    def submit_in_context(
        pool: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        return submit(pool, contextvars.copy_context().run, fn, *args, **kwargs)

    threading.Thread.start = functools.wraps(start)(start_in_context)  # type: ignore[assignment, method-assign]
    ThreadPoolExecutor.submit = functools.wraps(submit)(submit_in_context)  # type: ignore[assignment, method-assign]
