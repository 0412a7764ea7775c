"""Holds a repeated cell against its record: the first thing that differs, in words."""

from dataclasses import dataclass

from rlm_worker.contracts.trace import CellFinished

_SEEN = ("outcome", "stdout", "stderr", "error_type", "error_message", "error_line")
_BEFORE, _SHOWN = 20, 120


@dataclass(frozen=True, kw_only=True)
class Difference:
    """What a cell did otherwise than before."""

    what: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.what}: recorded {self.expected!r}, now {self.got!r}"


def difference(before: CellFinished, again: CellFinished) -> Difference | None:
    """The first difference of what was printed and raised, then of the variables that were left."""
    if before.digest != again.digest:
        return _of_output(before, again)
    # A record without variables was made before they were looked at; one without state has none.
    if before.variables is None or again.variables is None:
        return None
    return _of_variables(before.variables, again.variables)


def _of_output(before: CellFinished, again: CellFinished) -> Difference:
    for what in _SEEN:
        expected, got = str(getattr(before, what)), str(getattr(again, what))
        if expected != got:
            return _from_first(what, expected, got)
    return Difference(what="digest", expected=before.digest, got=again.digest)


def _of_variables(before: dict[str, str], again: dict[str, str]) -> Difference | None:
    for name in [*before, *again]:
        if before.get(name) != again.get(name):
            expected, got = (_said(marks.get(name)) for marks in (before, again))
            return Difference(what=f"variable {name}", expected=expected, got=got)
    return None


def _said(mark: str | None) -> str:
    if mark is None:
        return "not changed"
    return mark or "gone"


def _from_first(what: str, expected: str, got: str) -> Difference:
    pairs = zip(expected, got, strict=False)
    place = next((i for i, pair in enumerate(pairs) if pair[0] != pair[1]), min(len(expected), len(got)))
    start = max(0, place - _BEFORE)
    return Difference(what=what, expected=expected[start : start + _SHOWN], got=got[start : start + _SHOWN])
