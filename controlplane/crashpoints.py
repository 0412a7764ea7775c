"""Named places at which a test may kill this process, to prove that nothing is lost there."""

import os
import signal

POINTS = frozenset(
    {
        "submit.after_commit",
        "dispatch.before_enqueue",
        "dispatch.after_enqueue",
        "claim.after_commit",
        "record.before_commit",
        "record.after_commit",
        "park.before_commit",
        "park.after_commit",
        "settle.before_commit",
        "settle.after_commit",
        "cool.before_blob",
        "cool.after_blob",
        "cool.before_delete",
        "cool.after_delete",
    }
)


def crash_here(name: str) -> None:
    """Do nothing, unless CUSTODY_CRASH_AT names this place: then die at once, without any clean-up."""
    if os.environ.get("CUSTODY_CRASH_AT") == name:
        os.kill(os.getpid(), signal.SIGKILL)
