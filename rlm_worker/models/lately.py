"""Keeps what was made of the value seen last: the rows of a batch share one schema, and each would work it out anew."""

from collections.abc import Callable
from typing import Generic, TypeVar

A = TypeVar("A")
B = TypeVar("B")


class Lately(Generic[A, B]):
    """A function that remembers its last answer. The value must not change; it is known by identity."""

    def __init__(self, make: Callable[[A], B]) -> None:
        self._make = make
        self._last: tuple[A, B] | None = None

    def __call__(self, value: A) -> B:
        last = self._last
        if last is None or last[0] is not value:
            last = self._last = (value, self._make(value))
        return last[1]
