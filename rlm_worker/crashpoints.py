"""Named places where a test kills the worker for real, to prove what survives."""

import os
import signal
from collections.abc import Iterable

POINTS = frozenset(
    {
        "turn.before_hold",
        "turn.after_hold",
        "turn.before_record",
        "cell.before_run",
        "cell.before_record",
        "subcall.before_hold",
        "subcall.after_hold",
        "subcall.after_answer",
        "subcall.after_record",
        "child.after_start",
        "child.before_record",
        "submit.after_record",
        "park.before",
        "park.after",
        "settle.before",
        "settle.after",
    }
)
#: Before and after each write of the journal, by the kind of an event in it: `journal.before.cell_proposed`.
WRITES = ("journal.before", "journal.after")


def crash_here(name: str) -> None:
    """Die by SIGKILL when CUSTODY_CRASH_AT names this point; otherwise do nothing."""
    if os.environ.get("CUSTODY_CRASH_AT") == name:
        os.kill(os.getpid(), signal.SIGKILL)


def crash_at_write(when: str, kinds: Iterable[str]) -> None:
    """The same for a write of the journal that holds these kinds of events."""
    wanted = os.environ.get("CUSTODY_CRASH_AT")
    if wanted is not None and wanted in {f"{when}.{kind}" for kind in kinds}:
        os.kill(os.getpid(), signal.SIGKILL)
