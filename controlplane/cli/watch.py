"""Follow a job until it has ended, and turn Ctrl-C into orders: once stops it properly, twice kills it."""

import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Literal, Self

from controlplane.cli.progress import Progress
from controlplane.cli.screens import Screen
from controlplane.custodian import Custodian
from controlplane.views import JobView
from rlm_worker.contracts.trace import TraceRecord

_PAGE = 500


class Presses:
    """Counts SIGINT and SIGTERM instead of dying by them, for as long as it is entered."""

    def __init__(self) -> None:
        self.count = 0
        self._pressed = threading.Event()

    def __enter__(self) -> Self:
        self._before = {
            number: signal.signal(number, self._press) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        self._pressed.set()

    def wait(self, seconds: float) -> None:
        """Return early when somebody presses."""
        self._pressed.wait(seconds)
        self._pressed.clear()

    @property
    def order(self) -> Literal["", "stop", "kill"]:
        return "" if self.count == 0 else "stop" if self.count == 1 else "kill"


def pages(app: Custodian, job_id: str, *, after: int) -> Iterator[TraceRecord]:
    """The records of a trace from one place on, read page by page."""
    while records := app.trace(job_id, after=after, limit=_PAGE):
        yield from records
        after += len(records)


def watch(app: Custodian, job_id: str, *, screen: Screen, presses: Presses) -> JobView:
    """Show a job until nothing about it can change any more."""
    progress, given = Progress(), ""
    for view, records in app.follow(job_id, wait=presses.wait):
        for record in records:
            progress.take(record)
            screen.event(record)
        screen.update(view, progress, order=presses.order)
        if (has_ended(view) or asks_a_person(view)) and progress.events >= view.trace_events:
            return view
        if presses.order and presses.order != given and not view.is_terminal:
            given = presses.order
            app.stop(job_id, order=presses.order, by="cli", reason="interrupted at the terminal")
    raise AssertionError("a job is followed until nobody looks")


def asks_a_person(view: JobView) -> bool:
    """Parked for an answer: nobody works on it, and watching it may take days."""
    return view.state == "parked" and view.parked_for == "asked"


def has_ended(view: JobView) -> bool:
    """Ended, and where it was stopped, it is known whether anything is left."""
    return view.is_terminal and (
        view.stop is None or view.stop.verified_at is not None or bool(view.stop.survivors)
    )
