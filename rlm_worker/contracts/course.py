"""Trace events about the course of a REPL: that it turns in a circle, that its conversation starts anew."""

from typing import Literal

from rlm_worker.contracts.base import Count, Event, Sha256

#: How a REPL can turn in a circle.
Circle = Literal["repeated_failures", "repeated_observations", "empty_turns", "subcall_storm"]


class NoProgress(Event):
    """The REPL turns in a circle: whoever writes its cells was told (`steered`), or the job ends here (`ended`)."""

    kind: Literal["no_progress"] = "no_progress"
    #: The last iteration of the circle.
    iteration: Count
    detail: str
    finding: Circle = "repeated_failures"
    action: Literal["steered", "ended"] = "ended"
    #: The iterations that show it.
    iterations: tuple[Count, ...] = ()


class RolledOver(Event):
    """The conversation starts anew before `iteration`: iterations 1 to `covers_to` are left out of the prompt, not of the trace."""

    kind: Literal["rolled_over"] = "rolled_over"
    iteration: Count
    #: How many there were in this REPL, this one included.
    number: Count
    covers_to: Count
    #: Working set, finished iterations and variables, as the new conversation tells them.
    brief: str
    brief_digest: Sha256
    #: Of the messages that were left out.
    left_out_digest: Sha256
    tokens_before: Count
    tokens_after: Count
    #: Events in the trace when this was written: all that was left out stands before it.
    trace_events: Count
    #: Why: past the threshold that is set, or longer than the model takes.
    reason: Literal["threshold", "did_not_fit"] = "threshold"
