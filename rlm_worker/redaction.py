"""Keeps the worker's own secrets out of what it writes: every text is compared with what must never be there."""

import json
import os
import re
from functools import cache
from typing import Any, TypeVar

from rlm_worker.contracts.base import Contract

_SECRET_NAMES = re.compile(
    r"(?i)((api|access|private|signing|encryption)[_-]?key|token|secret|passw|passphrase|credential)"
)
#: Shorter values are too common in ordinary text to be replaced in it.
_SHORTEST = 12
_MARK = "[redacted]"

C = TypeVar("C", bound=Contract)


@cache
def _secrets() -> tuple[str, ...]:
    """Values of environment variables whose names say that they are secrets, the longest first."""
    found = {
        value for name, value in os.environ.items() if _SECRET_NAMES.search(name) and len(value) >= _SHORTEST
    }
    return tuple(sorted(found, key=len, reverse=True))


@cache
def _encoded() -> tuple[str, ...]:
    """The same as they stand in JSON text, where quotes and line ends are escaped."""
    return tuple(json.dumps(secret, ensure_ascii=False)[1:-1] for secret in _secrets())


def redact(value: C) -> C:
    """The value, with known secrets replaced wherever it holds text."""
    if not _secrets():
        return value
    body = value.model_dump(mode="json")
    text = json.dumps(body, ensure_ascii=False)
    if not any(secret in text for secret in _encoded()):
        return value
    return type(value).model_validate(
        {name: part if name == "kind" else _clean(part) for name, part in body.items()}
    )


def _clean(part: Any) -> Any:
    if isinstance(part, str):
        for secret in _secrets():
            part = part.replace(secret, _MARK)
        return part
    if isinstance(part, list):
        return [_clean(item) for item in part]
    if isinstance(part, dict):
        return {_clean(name): _clean(item) for name, item in part.items()}
    return part
