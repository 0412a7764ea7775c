"""The variables of a session in words: name, type, size, what they hold. Runs no code of the cell's own classes."""

import reprlib
from collections.abc import Mapping
from typing import Any

_SHOWN = 80
_SIZED = (str, bytes, bytearray, list, dict, set, frozenset, tuple)


class _Careful(reprlib.Repr):
    """Looks at the first items only, and asks no object of a cell's own class to describe itself."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxfrozenset = 20
        self.maxstring = self.maxlong = self.maxother = _SHOWN + 20
        self.maxlevel = 4

    def repr1(self, x: Any, level: int) -> str:
        if getattr(type(x), "__module__", "") == "__main__":
            return f"<{type(x).__name__}>"
        return super().repr1(x, level)

    def repr_Result(self, x: Any, level: int) -> str:  # noqa: N802 - named after the type, as reprlib wants
        return f"<Result failed: {x.error}>" if x.error else f"<Result {self.repr1(x.value, level - 1)}>"

    def repr_Deferred(self, x: Any, level: int) -> str:  # noqa: N802 - named after the type, as reprlib wants
        """To look at a call must not make it."""
        settled = x.settled
        return self.repr1(settled[0], level) if settled else "<call that was not awaited>"


_careful = _Careful()


def table(names: Mapping[str, Any], *, left_out: frozenset[str]) -> list[str]:
    """One line per variable, in the order in which they were made."""
    return [
        f"{name}: {type(value).__name__} = {short(value)}"
        for name, value in list(names.items())
        if not name.startswith("_") and name not in left_out
    ]


def short(value: object) -> str:
    """What a value holds, cut to a length that fits a line."""
    try:
        text = " ".join(_careful.repr(value).split())
    except Exception as error:  # noqa: BLE001 - a repr may fail in any way
        text = f"<repr failed: {type(error).__name__}>"
    size = f" (len {len(value):,})" if type(value) in _SIZED else ""  # type: ignore[arg-type]
    return (text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…") + size
