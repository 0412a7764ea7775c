"""Result: what a subcall answered, usable at once, by await, and by field. Makes no call itself but the one it was given."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import Any, Generic, TypeVar

from sandbox.guest.calls import SubcallError

T = TypeVar("T")

#: Field names that would hide what every Result has.
RESERVED = frozenset({"value", "probability", "model", "cached", "ok", "error", "keys"})
_SHOWN = 200


class Result:
    """The answer of a subcall. Fields by attribute or item: `r.severity`, `r["severity"]`.

    `value` is the whole answer (a dict, or an instance of the class you asked for), `probability` the model's own
    confidence where it gives one, `model` who answered, `cached` whether it came from the journal.
    In a batch a failed row has `ok` False and `error` set, and its fields raise SubcallError.
    """

    __slots__ = ("_fields", "cached", "error", "model", "ok", "probability", "value")

    def __init__(
        self,
        value: Any,
        *,
        fields: dict[str, Any] | None = None,
        probability: float | None = None,
        model: str = "",
        cached: bool = False,
        error: str | None = None,
    ) -> None:
        self.value = value
        self.probability = probability
        self.model = model
        self.cached = cached
        self.ok = error is None
        self.error = error
        self._fields = fields if fields is not None else value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the result has no field {name!r}, only {', '.join(self.keys())}") from None

    def __getitem__(self, name: str) -> Any:
        return self._answered()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._answered())

    def __contains__(self, name: object) -> bool:
        return name in self._answered()

    def keys(self) -> list[str]:
        """Names of the fields, so that `dict(result)` works."""
        return list(self._answered())

    def __plain__(self) -> Any:
        self._answered()
        return self.value

    def _answered(self) -> dict[str, Any]:
        if self.error is not None:
            raise SubcallError(f"this row failed and has no fields: {self.error}")
        return self._fields if isinstance(self._fields, dict) else {}

    def __await__(self) -> Generator[Any, None, "Result"]:
        return self
        yield

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Result) and (self.value, self.error) == (other.value, other.error)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        if self.error is not None:
            return f"<Result failed: {self.error[:_SHOWN]}>"
        sure = "" if self.probability is None else f" p={self.probability:.2f}"
        shown = repr(self.value)
        return f"<Result {shown if len(shown) <= _SHOWN else shown[:_SHOWN] + '…'}{sure}>"


def in_async_code() -> bool:
    """Whether the caller runs on an event loop, where answers can be awaited."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Done:
    """What a call without an answer gives in `async` code: it is done, and can be awaited."""

    def __await__(self) -> Generator[Any, None, None]:
        return
        yield

    def __repr__(self) -> str:
        return "<done>"


class Deferred(Generic[T]):
    """A call made inside `async` code: `await` runs it beside others, and touching it without await runs it now."""

    def __init__(self, *, now: Callable[[], T], later: Callable[[], Awaitable[T]]) -> None:
        self._now = now
        self._later = later
        self.settled: list[T] = []

    def _settle(self) -> T:
        if not self.settled:
            self.settled.append(self._now())
        return self.settled[0]

    def __await__(self) -> Generator[Any, None, T]:
        if not self.settled:
            answer = yield from self._later().__await__()
            self.settled.append(answer)
        return self.settled[0]

    def __plain__(self) -> Any:
        return self._settle()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._settle(), name)

    def __getitem__(self, key: Any) -> Any:
        return self._settle()[key]  # type: ignore[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._settle())  # type: ignore[call-overload, no-any-return]

    def __len__(self) -> int:
        return len(self._settle())  # type: ignore[arg-type]

    def __str__(self) -> str:
        return str(self._settle())

    def __repr__(self) -> str:
        return repr(self._settle())
