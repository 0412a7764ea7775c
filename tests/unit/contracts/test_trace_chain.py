"""A trace that was changed in any way is found out, and the place is named."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlm_worker.contracts.trace import (
    GENESIS,
    BrokenChain,
    DraftRecorded,
    StopObserved,
    TraceRecord,
    check_link,
    link,
)


def chain(count: int) -> list[TraceRecord]:
    records: list[TraceRecord] = []
    head = GENESIS
    for number in range(count):
        event = DraftRecorded(
            iteration=number, fields={"text": f"é{number}", "deep": [{"n": number, "f": 0.5}]}
        )
        records.append(link(event, seq=number, at_ms=1_000 + number, prev=head))
        head = records[-1].hash
    return records


def check(records: list[TraceRecord]) -> None:
    head = GENESIS
    for seq, record in enumerate(records):
        check_link(record, seq=seq, prev=head)
        head = record.hash


def test_a_whole_chain_is_taken():
    check(chain(5))


def test_a_chain_survives_its_way_through_json():
    check([TraceRecord.model_validate_json(record.model_dump_json()) for record in chain(5)])


def places(value: object, path: tuple = ()):
    """Every place in a record's event that holds a plain value."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from places(part, (*path, name))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from places(part, (*path, number))
    else:
        yield path


def put(value, path: tuple, new: object):
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = put(copy[path[0]], path[1:], new)
    return copy


NEW = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.just([]), st.just({}))


@settings(max_examples=200)
@given(st.integers(0, 5), st.data(), NEW)
def test_any_change_in_an_event_is_found(seq, data, new):
    records = chain(6)
    path = data.draw(st.sampled_from(list(places(records[seq].event))))
    changed = put(records[seq].event, path, new)
    if _same(changed, records[seq].event):
        return
    records[seq] = records[seq].model_copy(update={"event": changed})

    with pytest.raises(BrokenChain) as broken:
        check(records)

    assert broken.value.seq == seq


def _same(one: object, other: object) -> bool:
    return repr(one) == repr(other)


@pytest.mark.parametrize("seq", range(4))
@pytest.mark.parametrize(
    "change",
    [
        {"seq": 99},
        {"at_ms": 5},
        {"prev": "1" * 64},
        {"hash": "1" * 64},
        {"event": {"kind": "draft_recorded"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_change_in_a_link_is_found_where_it_is(seq, change):
    records = chain(4)
    records[seq] = records[seq].model_copy(update=change)

    with pytest.raises(BrokenChain) as broken:
        check(records)

    assert broken.value.seq == seq
    assert f"trace event {seq}" in str(broken.value)


@given(st.integers(0, 4))
def test_a_dropped_record_is_found_unless_it_is_the_last(seq):
    records = chain(6)
    del records[seq]

    with pytest.raises(BrokenChain) as broken:
        check(records)

    assert broken.value.seq == seq


@given(st.lists(st.integers(0, 5), min_size=2, max_size=2, unique=True))
def test_swapped_records_are_found(pair):
    records = chain(6)
    first, second = sorted(pair)
    records[first], records[second] = records[second], records[first]

    with pytest.raises(BrokenChain) as broken:
        check(records)

    assert broken.value.seq == first


@given(st.integers(0, 5))
def test_a_doubled_record_is_found(seq):
    records = chain(6)
    records.insert(seq, records[seq])

    with pytest.raises(BrokenChain) as broken:
        check(records)

    assert broken.value.seq == seq + 1


def test_a_record_put_in_with_a_right_hash_of_its_own_is_found_by_the_next():
    records = chain(3)
    records[1] = link(StopObserved(order="stop"), seq=1, at_ms=0, prev=records[0].hash)

    with pytest.raises(BrokenChain) as broken:
        check(records)

    assert broken.value.seq == 2


def test_a_record_reads_back_as_the_event_it_was():
    event = DraftRecorded(iteration=1, fields={"a": [1, None]})

    assert link(event, seq=0, at_ms=0, prev=GENESIS).typed() == event
