"""A conversation that does not fit: older observations are left out, never the task, the code or the latest news."""

from collections.abc import Sequence
from dataclasses import replace

from rlm_worker.models import Message
from rlm_worker.prompts import clip

#: The system prompt and the task.
_KEPT_AT_THE_START = 2
_LEFT_OUT = (
    "[{:,} characters of an older observation are left out: they did not fit. Variables are all still there.]"
)


def size(messages: Sequence[Message]) -> int:
    return sum(len(message.content) for message in messages)


def shorten(messages: Sequence[Message], *, most: int) -> list[Message]:
    """At most about `most` characters: the oldest observations go first; if that is not enough, the latest is cut too."""
    kept = list(messages)
    for at in range(_KEPT_AT_THE_START, len(kept) - 1):
        if size(kept) <= most:
            return kept
        said = kept[at]
        if said.role == "user":
            short = _LEFT_OUT.format(len(said.content))
            kept[at] = replace(said, content=short) if len(short) < len(said.content) else said
    over = size(kept) - most
    last = len(kept) - 1
    if over > 0 and last >= _KEPT_AT_THE_START:
        kept[last] = replace(
            kept[last], content=clip(kept[last].content, max(500, len(kept[last].content) - over))
        )
    return kept
