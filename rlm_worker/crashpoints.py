"""Named places where a test kills the worker for real, to prove what survives."""

import os
import signal

POINTS = frozenset(
    {
        "turn.after_hold",
        "turn.after_answer",
        "cell.before_run",
        "cell.before_record",
        "cell.after_record",
        "subcall.after_hold",
        "subcall.after_answer",
        "subcall.after_record",
        "submit.after_record",
        "settle.before",
    }
)


def crash_here(name: str) -> None:
    """Die by SIGKILL when CUSTODY_CRASH_AT names this point; otherwise do nothing."""
    if os.environ.get("CUSTODY_CRASH_AT") == name:
        os.kill(os.getpid(), signal.SIGKILL)
