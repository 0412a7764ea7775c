"""Exit codes, in one place, and the refusals that carry them. Imports nothing heavy."""

from enum import IntEnum

from controlplane.errors import ControlPlaneError, Rejected


class Exit(IntEnum):
    """What a script can rely on."""

    ANSWERED = 0  #: the job answered, or the command did what it was asked
    INTERNAL = 1  #: a defect of ours; the traceback is in the home's log folder
    USAGE = 2  #: the request must change; nothing was started
    PARTIAL = 3  #: a limit ended the job, and it still gave an answer
    FAILED = 4  #: the job, a check (replay, doctor) or the machine failed
    STOPPED = 5  #: somebody stopped the job
    ASKS = 6  #: the job waits for a person's answer and holds nothing
    INTERRUPTED = 130  #: Ctrl-C or SIGTERM here
    PIPE_CLOSED = 141  #: whoever read our output went away


_BY_STATE = {
    "succeeded": Exit.ANSWERED,
    "partial": Exit.PARTIAL,
    "failed": Exit.FAILED,
    "quarantined": Exit.FAILED,
    "stopped": Exit.STOPPED,
    "parked": Exit.ASKS,
}


class Refusal(Exception):
    """The command will not go on; the message is the one paragraph a person reads."""

    def __init__(self, message: str, *, code: Exit = Exit.USAGE) -> None:
        super().__init__(message)
        self.code = code


def exit_of_state(state: str) -> Exit:
    """The exit code of a job that ended in this state; a job that has not ended is no failure."""
    return _BY_STATE.get(state, Exit.ANSWERED)


def exit_of_error(error: ControlPlaneError) -> Exit:
    """A request that must change is usage; everything else failed."""
    return Exit.USAGE if isinstance(error, Rejected) else Exit.FAILED
