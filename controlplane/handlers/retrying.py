"""Doing again what failed because somebody else wrote the same at that moment. Only for acts that are whole transactions."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from controlplane.errors import VersionConflict

P = ParamSpec("P")
R = TypeVar("R")
#: Conflicts are rare, since rows that a decision rests on are locked: more of them in a row have another cause.
TIMES = 4


def retried(act: Callable[P, R]) -> Callable[P, R]:
    """Read again and decide again, a few times; the last conflict is the caller's."""

    @wraps(act)
    def again(*args: P.args, **kwargs: P.kwargs) -> R:
        for _ in range(TIMES - 1):
            try:
                return act(*args, **kwargs)
            except VersionConflict:
                continue
        return act(*args, **kwargs)

    return again
