"""Keeps the worker's own secrets out of the trace: every string that goes in is compared with what must never be there."""

import os
import re
from functools import cache

from rlm_worker.contracts.trace import TraceEvent

_SECRET_NAMES = re.compile(r"(?i)(api[_-]?key|token|secret|passw|credential)")
#: Shorter values are too common in ordinary text to be replaced in it.
_SHORTEST = 12
_MARK = "[redacted]"


@cache
def _secrets() -> tuple[str, ...]:
    """Values of environment variables whose names say that they are secrets."""
    found = {
        value for name, value in os.environ.items() if _SECRET_NAMES.search(name) and len(value) >= _SHORTEST
    }
    return tuple(sorted(found, key=len, reverse=True))


def redact(event: TraceEvent) -> TraceEvent:
    """The event, with known secret values replaced."""
    secrets = _secrets()
    if not secrets:
        return event
    text = event.model_dump_json()
    clean = text
    for secret in secrets:
        clean = clean.replace(secret, _MARK)
    return event if clean == text else type(event).model_validate_json(clean)
