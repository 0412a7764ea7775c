"""A predict() as the cell sent it: what is taken, what is refused and why, and when two questions are one."""

import pytest

from rlm_worker.calls import read_call
from rlm_worker.errors import BadCall

MODELS = ("small", "large")
SIGNATURE = "text, n: int -> label: Literal['a','b']"


def call(inputs=None, **payload):
    given = {"signature": SIGNATURE, **payload}
    return read_call(given, inputs={"text": "x", "n": 1} if inputs is None else inputs, models=MODELS)


def test_a_call_names_its_parts():
    read = call(instructions="Be strict.")

    assert (read.model, read.instructions, read.signature) == ("small", "Be strict.", SIGNATURE)
    assert read.schema["properties"] == {"label": {"enum": ["a", "b"]}}


def test_a_schema_may_stand_for_the_signature():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}

    assert read_call({"schema": schema}, inputs={"anything": 1}, models=MODELS).schema == schema


@pytest.mark.parametrize(
    ("inputs", "payload", "told"),
    [
        ([1, 2], {}, "named values, got list"),
        ({"text": "x"}, {}, "the signature takes"),
        ({"text": "x", "n": 1, "more": 2}, {}, "the signature takes"),
        (None, {"signature": "a, b"}, "has no '->'"),
        (None, {"signature": None}, "give a signature"),
        (None, {"signature": 7, "schema": "x"}, "give a signature"),
        (None, {"signature": None, "schema": {"type": "array"}}, "give a signature"),
        (
            None,
            {"signature": None, "schema": {"type": "object", "properties": 1}},
            "not a usable JSON Schema",
        ),
        (None, {"instructions": ["x"]}, "are strings"),
        (None, {"model": 5}, "are strings"),
        (None, {"model": "expensive"}, "may use small, large for predict"),
    ],
)
def test_a_call_that_cannot_be_used_says_what_to_change(inputs, payload, told):
    with pytest.raises(BadCall, match=told):
        call(inputs, **payload)


def test_the_same_question_to_the_same_model_is_one():
    assert call().key == call(model="small").key == call(instructions="").key
    assert call({"n": 1, "text": "x"}).key == call({"text": "x", "n": 1}).key


@pytest.mark.parametrize(
    "other",
    [
        {"inputs": {"text": "y", "n": 1}},
        {"inputs": {"text": "x", "n": 1.0}},
        {"instructions": "Else."},
        {"model": "large"},
        {"signature": "text, n: int -> label: Literal['a','c']"},
    ],
)
def test_whatever_differs_makes_another_question(other):
    assert call(**other).key != call().key


@pytest.mark.parametrize(
    ("signature", "tokens"),
    [
        ("text, n -> a: Literal['x'], b: int, c: bool, d: date", 96),
        ("text, n -> a: str", 512),
        ("text, n -> a: list[int]", 512),
        ("text, n -> a: int, b: int, c: int, d: int, e: int", 512),
    ],
)
def test_closed_types_are_given_few_tokens(signature, tokens):
    assert call(signature=signature).max_output_tokens == tokens
