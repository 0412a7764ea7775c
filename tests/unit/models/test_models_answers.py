"""Typed answers: their JSON, and how sure the model was of a label."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_worker.models.answers import (
    Choice,
    Token,
    closed_choice,
    label_probability,
    parse_json,
    tokens_of_logprobs,
)

LEVEL = Choice("level", ('"low"', '"high"'))


def certain(*texts: str) -> list[Token]:
    return [Token(text, ((text, 1.0),)) for text in texts]


def test_the_mass_of_rivals_is_what_is_left_of_certainty() -> None:
    tokens = [
        *certain('{"', "level", '": "'),
        Token("low", (("low", 0.3), ("high", 0.1), ("medium", 0.6))),
        *certain('"}'),
    ]
    assert label_probability(LEVEL, tokens) == pytest.approx(0.75)


def test_tokens_that_spell_the_same_label_are_added_up() -> None:
    tokens = [
        *certain('{"level": "'),
        Token("low", (("low", 0.3), ("l", 0.3), ("hi", 0.2), ("h", 0.2))),
        *certain('"}'),
    ]
    assert label_probability(LEVEL, tokens) == pytest.approx(0.6)


def test_labels_with_a_common_beginning_are_told_apart_where_they_part() -> None:
    choice = Choice("kind", ('"network"', '"neutral"'))
    tokens = [*certain('{"kind": "', "ne"), Token("twork", (("twork", 0.8), ("utral", 0.2))), *certain('"}')]
    assert label_probability(choice, tokens) == pytest.approx(0.8)


def test_a_token_only_the_constraint_brought_up_tells_nothing() -> None:
    tokens = [
        *certain('{"level": "'),
        Token("low", (("why", 0.9), ("low", 0.0001)), is_ranked=False),
        *certain('"}'),
    ]
    assert label_probability(LEVEL, tokens) is None


def test_booleans_and_bare_labels_and_fences_are_read() -> None:
    yes = closed_choice({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]})
    tokens = [
        *certain("```json\n", "{", '"ok"', " :"),
        Token(" true", ((" true", 0.9), (" false", 0.1))),
        *certain("}"),
    ]
    assert label_probability(yes, tokens) == pytest.approx(0.9)
    bare = closed_choice({"enum": ["a", "b"]})
    assert label_probability(
        bare, [*certain('"'), Token("a", (("a", 0.5), ("b", 0.5))), *certain('"')]
    ) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {"type": "string"},
        {
            "type": "object",
            "properties": {"a": {"enum": [1]}, "b": {"type": "string"}},
            "required": ["a", "b"],
        },
        {"type": "object", "properties": {"a": {"enum": [1]}}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    ],
)
def test_other_schemas_pose_no_choice(schema) -> None:
    assert closed_choice(schema) is None


labels = st.lists(st.text(min_size=1, max_size=8), min_size=2, max_size=5, unique=True)


@given(labels, st.data())
def test_a_probability_is_between_nought_and_one_whatever_the_tokens(
    names: list[str], data: st.DataObject
) -> None:
    choice = closed_choice({"type": "object", "properties": {"x": {"enum": names}}, "required": ["x"]})
    text = json.dumps({"x": data.draw(st.sampled_from(names))}, ensure_ascii=False)
    tokens = []
    while text:
        size = data.draw(st.integers(1, len(text)))
        rivals = data.draw(st.dictionaries(st.text(max_size=6), st.floats(0, 1), max_size=4))
        tokens.append(Token(text[:size], tuple({**rivals, text[:size]: 0.5}.items())))
        text = text[size:]
    sure = label_probability(choice, tokens)
    assert sure is None or 0 <= sure <= 1


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda x: st.lists(x) | st.dictionaries(st.text(max_size=12), x),
    )
)
def test_any_json_in_place_of_logprobs_is_no_crash(value) -> None:
    assert isinstance(tokens_of_logprobs(value), list)
    assert isinstance(tokens_of_logprobs({"content": value}), list)
    assert isinstance(
        tokens_of_logprobs({"content": [value, {"token": "a", "logprob": value, "top_logprobs": value}]}),
        list,
    )


@given(st.text(max_size=40))
def test_parsing_never_raises(text: str) -> None:
    parse_json(text)


def test_not_a_number_is_not_json() -> None:
    assert parse_json('{"x": NaN}') is None
