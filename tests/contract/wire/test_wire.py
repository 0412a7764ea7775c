"""The wire of yesterday is read by the code of today, byte for byte. README.md says how a file may change."""

import json

import pytest

from rlm_worker.contracts.base import PROTOCOL_VERSION
from rlm_worker.contracts.trace import EVENT_KINDS, check_link
from tests.contract.wire.values import EVENT, FOLDER, RECORDS, VALUES, encoded, path_of

FILES = sorted(FOLDER.glob("*.json"))


def test_there_is_a_file_for_every_value_and_no_other():
    assert {path.stem for path in FILES} == set(VALUES), (
        "python -m tests.contract.wire.values NAME writes a new one"
    )


@pytest.mark.parametrize("kind", EVENT_KINDS)
def test_every_kind_of_event_has_a_golden_file(kind):
    assert path_of(f"event.{kind}").is_file(), "a new kind needs a golden file: see README.md"


@pytest.mark.parametrize("name", sorted(VALUES))
def test_a_golden_file_decodes_to_its_value_and_back_to_its_bytes(name):
    golden = path_of(name).read_bytes()

    value = type(VALUES[name]).model_validate_json(golden)

    assert value == VALUES[name]
    assert encoded(value) == golden


@pytest.mark.parametrize("kind", EVENT_KINDS)
def test_an_event_is_found_by_its_kind_and_its_chain_form_is_that_of_the_wire(kind):
    golden = json.loads(path_of(f"event.{kind}").read_bytes())

    event = EVENT.validate_python(golden)

    assert event.kind == kind
    assert event.model_dump(mode="json") == golden


@pytest.mark.parametrize("name", sorted(VALUES))
def test_a_golden_value_sets_every_field_apart_from_its_default(name):
    """So that a field that is renamed or dropped cannot go unseen."""
    value = VALUES[name]
    fixed = {"kind", "protocol", "outcome", "network_policy", "node"}

    left_out = [
        field
        for field, about in type(value).model_fields.items()
        if field not in fixed
        and not about.is_required()
        and getattr(value, field) == about.get_default(call_default_factory=True)
    ]

    assert left_out == []


def test_the_stored_chain_still_holds():
    check_link(RECORDS[0], seq=0, prev="0" * 64)
    check_link(RECORDS[1], seq=1, prev=RECORDS[0].hash)


@pytest.mark.parametrize("name", sorted(path.stem for path in (FOLDER / "v1").glob("*.json")))
def test_what_was_stored_under_version_1_is_still_read(name):
    """Values of which version 2 knows more: what it adds has its default, and the rest says the same."""
    golden = json.loads((FOLDER / "v1" / f"{name}.json").read_bytes())

    value = type(VALUES[name]).model_validate_json(json.dumps(golden))

    again = json.loads(value.model_dump_json())
    assert {field: again[field] for field in golden if field != "spec"} == {
        field: golden[field] for field in golden if field != "spec"
    }


def test_the_files_are_those_of_this_protocol_version():
    """Whoever raises the version writes new files, and keeps reading the old ones for as long as traces of them exist."""
    assert PROTOCOL_VERSION == 2
    assert json.loads(path_of("job_spec").read_bytes())["protocol"] == PROTOCOL_VERSION
