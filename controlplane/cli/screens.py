"""Where a watched job is shown: a live view on a terminal, a line an event on a pipe, or nothing."""

import sys
import time
from types import TracebackType
from typing import Protocol, Self

import click
from rich.console import Console
from rich.live import Live

from controlplane.cli.events import summary
from controlplane.cli.live import render
from controlplane.cli.progress import Progress
from controlplane.cli.safe import one_line
from controlplane.custodian import driver_name
from controlplane.views import JobView
from rlm_worker.contracts.trace import TraceRecord

#: Events that say nothing a person waits for; the trace has them.
QUIET_KINDS = frozenset({"subcall_started", "host_call_finished", "model_asked", "clock_read"})


class Screen(Protocol):
    """Shows a job while it works."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def event(self, record: TraceRecord) -> None: ...

    def update(self, view: JobView, progress: Progress, *, order: str) -> None: ...

    def say(self, words: str) -> None: ...


class SilentScreen:
    """Shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def event(self, record: TraceRecord) -> None:
        pass

    def update(self, view: JobView, progress: Progress, *, order: str) -> None:
        pass

    def say(self, words: str) -> None:
        pass


class LineScreen(SilentScreen):
    """One line an event, on stderr, with the time since the first."""

    def __init__(self) -> None:
        self._first_ms: int | None = None
        self._has_header = False
        self._waited_for = ""

    def event(self, record: TraceRecord) -> None:
        if self._first_ms is None:
            self._first_ms = record.at_ms
        if record.kind not in QUIET_KINDS:
            self.say(f"{(record.at_ms - self._first_ms) / 1000:8.2f} s  {summary(record)}")

    def update(self, view: JobView, progress: Progress, *, order: str) -> None:  # noqa: ARG002
        if not self._has_header:
            self._has_header = True
            facts = f"{driver_name(view.spec)} · predict() by {view.spec.sub_model}"
            self.say(f"job {view.job_id} · {one_line(facts)} · {one_line(view.spec.task)}")
        if view.waiting_for not in ("", self._waited_for):
            self._waited_for = view.waiting_for
            self.say(f"waiting: {one_line(view.waiting_for, width=300)}")

    def say(self, words: str) -> None:
        click.echo(words, err=True)


class LiveScreen(SilentScreen):
    """The live view, redrawn in place on stderr so that stdout carries the answer alone."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def update(self, view: JobView, progress: Progress, *, order: str) -> None:
        self._live.update(render(view, progress, now_ms=round(time.time() * 1000), order=order), refresh=True)

    def say(self, words: str) -> None:
        self._live.console.print(words, markup=False, highlight=False)


def screen_for(*, silent: bool) -> Screen:
    """The screen that fits where stderr goes."""
    if silent:
        return SilentScreen()
    if sys.stderr.isatty():
        return LiveScreen(Console(stderr=True))
    return LineScreen()
