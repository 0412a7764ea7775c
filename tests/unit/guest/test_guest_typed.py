"""Types of a cell to JSON Schema and back."""

import dataclasses
import enum
from datetime import date, datetime
from typing import Literal, NotRequired, Optional, TypedDict

import pydantic
import pytest

from sandbox.guest.typed import TypeNotSupported, build, revive, schema_of


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Part:
    name: str
    price: float | None = None


@dataclasses.dataclass(frozen=True)
class Order:
    """An order."""

    placed: date
    colour: Colour
    parts: list[Part]
    tags: dict[str, int]
    rush: Literal["yes", "no"] = "no"


class Row(TypedDict):
    when: datetime
    note: NotRequired[str]


class Model(pydantic.BaseModel):
    day: date
    part: Optional[int] = None  # noqa: UP045 - as people write it


def test_a_dataclass_becomes_a_closed_object():
    schema = schema_of(Order)
    assert schema["required"] == ["placed", "colour", "parts", "tags"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["placed"] == {"type": "string", "format": "date"}
    assert schema["properties"]["colour"] == {"enum": ["red", "blue"]}
    assert schema["properties"]["rush"] == {"enum": ["yes", "no"]}
    assert schema["properties"]["parts"]["items"]["properties"]["price"] == {
        "anyOf": [{"type": "number"}, {"type": "null"}]
    }


@pytest.mark.requirement("S3-RLM-4")
def test_an_answer_becomes_an_instance_with_real_values():
    answer = {
        "placed": "2024-02-03",
        "colour": "blue",
        "parts": [{"name": "bolt", "price": 1.5}],
        "tags": {"a": 1},
    }
    assert build(Order, answer) == Order(date(2024, 2, 3), Colour.BLUE, [Part("bolt", 1.5)], {"a": 1})
    assert build(Row, {"when": "2024-02-03T04:05:06"}) == {"when": datetime(2024, 2, 3, 4, 5, 6)}
    assert build(Model, {"day": "2024-02-03"}).day == date(2024, 2, 3)


def test_typed_dicts_and_pydantic_models_have_schemas_too():
    assert schema_of(Row)["required"] == ["when"]
    assert schema_of(Model)["properties"]["day"]["format"] == "date"


def test_a_type_without_schema_says_which_are_known():
    with pytest.raises(TypeNotSupported, match="use str, int"):
        schema_of(complex)
    with pytest.raises(TypeNotSupported, match="no annotated fields"):
        schema_of(dataclasses.make_dataclass("Nothing", []))


def test_a_type_that_contains_itself_is_refused():
    @dataclasses.dataclass
    class Node:
        below: "list[Node]"

    with pytest.raises(TypeNotSupported, match="may not contain itself"):
        schema_of(Node, names={"Node": Node})


def test_dates_are_revived_where_the_schema_says_so_and_only_there():
    schema = {
        "properties": {
            "day": {"format": "date"},
            "maybe": {"anyOf": [{"format": "date-time"}, {"type": "null"}]},
            "days": {"items": {"format": "date"}},
            "text": {"type": "string"},
        }
    }
    value = {
        "day": "2024-01-02",
        "maybe": "2024-01-02T03:04:05+00:00",
        "days": ["2024-01-02", "soon"],
        "text": "2024-01-02",
    }
    revived = revive(value, schema)
    assert revived["day"] == date(2024, 1, 2)
    assert revived["maybe"].hour == 3
    assert revived["days"] == [date(2024, 1, 2), "soon"]
    assert revived["text"] == "2024-01-02"
