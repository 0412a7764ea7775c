"""Long parts of an event are kept apart and put back, whatever the event holds."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controlplane.adapters.long_texts import LARGE, mark_of, packed, to_bytes, to_text, unpacked

#: Texts around the threshold, with what databases and encoders stumble over.
texts = st.one_of(
    st.text(max_size=5),
    st.builds(lambda part, times: part * times, st.text(min_size=1, max_size=3), st.integers(1, LARGE)),
    st.sampled_from(["\ud83d", "\x00" * (LARGE + 1), "\ud83d " * LARGE, "é" * LARGE, "x" * (LARGE + 1)]),
)
names = st.one_of(st.sampled_from(["$blob", "$json", "b", "a"]), st.text(max_size=3))
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), texts
    ),
    lambda part: st.one_of(st.lists(part, max_size=4), st.dictionaries(names, part, max_size=4)),
    max_leaves=12,
)


@given(st.dictionaries(names, values, max_size=4).map(lambda fields: {"kind": "k", **fields}))
@example({"kind": "k", "value": {"$blob": mark_of(b"x" * 5000)}, "text": "x" * 5000})
@example({"kind": "k", "value": [{"$json": "7", "more": ["x" * 5000]}]})
def test_what_was_packed_is_unpacked_to_the_order_of_its_keys(event):
    event = json.loads(json.dumps(event))  # JSON makes one character of two halves next to each other
    kept: dict[str, bytes] = {}
    left = packed(event, kept)

    back = unpacked(json.loads(json.dumps(left)), lambda mark: to_text(kept[mark]))

    assert repr(back) == repr(event)
    assert all(mark_of(content) == mark for mark, content in kept.items())


@pytest.mark.requirement("S3-FIVE-5")
def test_nothing_long_is_left_in_an_event_and_what_is_equal_is_kept_once():
    long = "long " * 2_000
    rows = [{"n": n} for n in range(2_000)]
    kept: dict[str, bytes] = {}

    left = packed(
        {"kind": "k", "a": long, "b": [long, {"c": long}], "value": rows, "short": "s" * LARGE}, kept
    )

    assert len(json.dumps(left)) < 2 * LARGE
    assert sorted(len(content) for content in kept.values()) == sorted([len(long), len(json.dumps(rows))])


def test_a_mark_is_of_the_bytes_so_that_half_a_character_has_one_too():
    assert mark_of(to_bytes("\ud83d")) != mark_of(to_bytes("\ude00"))
    assert to_text(to_bytes("\ud83d \x00")) == "\ud83d \x00"
