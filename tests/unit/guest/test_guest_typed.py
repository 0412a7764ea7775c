"""Types of a cell to JSON Schema and back."""

import dataclasses
import enum
import linecache
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Literal, NotRequired, Optional, TypedDict

import pydantic
import pytest

from rlm_worker.schemas import shape_of
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


class Kind(enum.Enum):
    """What it is."""

    PLAIN = (1, 2)
    ODD = (3, 4)


class Inner(pydantic.BaseModel):
    day: date


class Outer(pydantic.BaseModel):
    inner: Inner


@dataclasses.dataclass
class Holder:
    """Holds things."""

    outer: Outer
    kind: Kind
    price: Decimal
    pair: tuple[int, date]
    many: tuple[int, ...]
    by_kind: dict[Colour, int]
    by_number: dict[int, str]
    about: Annotated[str, "in one sentence"]
    size: int = dataclasses.field(default=1, metadata={"description": "in metres"})


ANSWER = {
    "outer": {"inner": {"day": "2024-01-02"}},
    "kind": "ODD",
    "price": "1.10",
    "pair": [1, "2024-01-02"],
    "many": [1, 2],
    "by_kind": {"red": 1},
    "by_number": {"7": "x"},
    "about": "so",
}


def test_a_pydantic_model_inside_a_dataclass_has_its_definitions_written_out():
    schema = schema_of(Holder)

    assert "$ref" not in str(schema)
    assert shape_of(schema).mistakes(ANSWER) == ()
    assert shape_of(schema).mistakes({**ANSWER, "by_number": {"x": "y"}})
    assert shape_of(schema).mistakes({**ANSWER, "price": "cheap"})


@pytest.mark.requirement("S3-RLM-4")
def test_every_kind_of_field_comes_back_as_the_real_thing():
    built = build(Holder, ANSWER)

    assert isinstance(built.outer, Outer)
    assert built.outer.inner.day == date(2024, 1, 2)
    assert built.kind is Kind.ODD
    assert built.price == Decimal("1.10")
    assert built.pair == (1, date(2024, 1, 2))
    assert built.many == (1, 2)
    assert built.by_kind == {Colour.RED: 1}
    assert built.by_number == {7: "x"}


def test_docstrings_metadata_and_annotations_describe():
    schema = schema_of(Holder)

    about = {name: part.get("description") for name, part in schema["properties"].items()}
    assert schema["description"] == "Holds things."
    assert (about["kind"], about["about"], about["size"]) == ("What it is.", "in one sentence", "in metres")
    assert "description" not in schema_of(Part)


def test_remarks_in_the_source_of_a_cell_describe_the_fields(monkeypatch):
    source = "import dataclasses\n@dataclasses.dataclass\nclass Leak:\n    where: str  # the module\n    size: int\n"
    namespace = {}
    monkeypatch.setitem(
        linecache.cache, "<cell 1 1>", (len(source), None, source.splitlines(True), "<cell 1 1>")
    )
    exec(compile(source, "<cell 1 1>", "exec"), namespace)

    properties = schema_of(namespace["Leak"])["properties"]

    assert properties["where"] == {"type": "string", "description": "the module"}
    assert properties["size"] == {"type": "integer"}


def test_tuples_decimals_and_keys_are_revived_where_the_schema_says_so():
    schema = {
        "properties": {
            "price": {"anyOf": [{"format": "decimal"}, {"type": "null"}]},
            "pair": {"prefixItems": [{"type": "integer"}, {"format": "date"}]},
            "by": {"propertyNames": {"pattern": r"^-?\d+$"}, "additionalProperties": {}},
        }
    }
    value = {"price": "1.5", "pair": [1, "2024-01-02"], "by": {"3": "x"}}

    assert revive(value, schema) == {"price": Decimal("1.5"), "pair": (1, date(2024, 1, 2)), "by": {3: "x"}}
