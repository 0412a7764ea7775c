"""Values that are made of checked parts are those that checking would have made."""

import pytest

from rlm_worker.contracts.trace import Hold, SubcallStarted, TraceRecord, link
from rlm_worker.models.lately import Lately

PARTS = {
    "iteration": 3,
    "ordinal": 7,
    "key": "a" * 64,
    "model": "m",
    "signature": "a -> b",
    "inputs": {"a": 1},
    "hold": Hold(subcalls=1),
}


def test_a_made_value_equals_a_checked_one_in_every_form():
    made, checked = SubcallStarted.made(**PARTS), SubcallStarted(**PARTS)

    assert made == checked
    assert made.model_dump_json() == checked.model_dump_json()
    assert made.model_copy(update={"ordinal": 8}) == checked.model_copy(update={"ordinal": 8})
    assert link(made, seq=0, at_ms=1, prev="0" * 64) == link(checked, seq=0, at_ms=1, prev="0" * 64)


def test_a_made_value_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        SubcallStarted.made(**PARTS).ordinal = 9  # type: ignore[misc]


def test_a_value_cannot_be_made_without_what_it_needs():
    with pytest.raises(TypeError, match="TraceRecord lacks hash, prev"):
        TraceRecord.made(seq=0, at_ms=1, event={})


def test_what_is_remembered_of_a_value_is_not_taken_for_another():
    asked: list[dict[str, int]] = []
    keys = Lately(lambda value: asked.append(value) or tuple(value))
    first, equal, other = {"a": 1}, {"a": 1}, {"b": 2}

    assert [keys(first), keys(first), keys(equal), keys(other), keys(first)] == [
        ("a",),
        ("a",),
        ("a",),
        ("b",),
        ("a",),
    ]
    assert len(asked) == 4
