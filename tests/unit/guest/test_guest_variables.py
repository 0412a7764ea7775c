"""Digests of variables: the same for the same values, other for others, and never by running a cell's code."""

import collections
import datetime as dt

import pytest

from sandbox.guest.variables import OTHERS, Variables


def digest_of(value: object) -> str:
    names: dict[str, object] = {}
    watched = Variables(names)
    names["x"] = value
    return watched.changed()["x"]


class Named:
    def __init__(self, n: int) -> None:
        self.n = n


Named.__module__ = "__main__"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 2),
        (1, 1.0),
        (1, True),
        ("a" * 9_000, "a" * 8_999 + "b"),
        ("a" * 9_000, "a" * 9_001),
        (b"a", "a"),
        ([1, 2], (1, 2)),
        ([1, [2, {"k": 3}]], [1, [2, {"k": 4}]]),
        ({"a": 1}, {"b": 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1, 2}, {1, 3}),
        (dt.date(2024, 1, 1), dt.date(2024, 1, 2)),
        (collections.Counter("aab"), collections.Counter("abb")),
        (collections.deque([1]), collections.deque([2])),
        (Named(1), Named(2)),
        (ValueError("a"), ValueError("b")),
        (lambda: 1 + len("a"), lambda: max(3, 4)),
    ],
)
def test_values_that_differ_have_digests_that_differ(one, other):
    assert digest_of(one) != digest_of(other)


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"b", "a", "c"},
        lambda: [1, "x", None, {"k": (1.5, b"z")}],
        lambda: Named(7),
        object,
        lambda: (i for i in "ab"),
        lambda: ValueError("same"),
    ],
)
def test_values_that_are_equal_have_equal_digests_wherever_they_lie(make):
    keep = make()

    assert digest_of(keep) == digest_of(make())


def test_no_code_of_a_cell_runs_to_take_a_digest():
    class Trap:
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"asked for {name}")

        __repr__ = __eq__ = __len__ = __iter__ = __hash__ = None  # type: ignore[assignment]

    Trap.__module__ = "__main__"

    assert digest_of(Trap()) == digest_of(Trap())


def test_only_what_changed_is_told_and_what_is_gone_is_told_once():
    names: dict[str, object] = {"print": print}
    watched = Variables(names)
    names.update(a=1, rows=[1], _hidden=2)
    first = watched.changed()
    names["rows"].append(2)  # type: ignore[attr-defined]
    second = watched.changed()
    del names["a"]

    assert set(first) == {"a", "rows"}
    assert set(second) == {"rows"}
    assert watched.changed() == {"a": ""}
    assert watched.changed() == {}


def test_more_names_than_are_looked_at_are_counted():
    names: dict[str, object] = {}
    watched = Variables(names)
    names.update({f"v{i}": 0 for i in range(400)}, one=1, big=[[i] * 100 for i in range(10_000)])

    told = watched.changed()

    assert len(told) == 301
    assert told[OTHERS] == "102 more"


def test_a_list_that_holds_itself_has_a_digest():
    loop: list[object] = [1]
    loop.append(loop)

    assert digest_of(loop) == digest_of(loop)
