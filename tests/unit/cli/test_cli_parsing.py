"""What a person types becomes exact amounts, or one paragraph that says what to type instead."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.cli.exits import Exit, Refusal
from controlplane.cli.parsing import parse_budget, parse_labels, parse_params
from rlm_worker.contracts.job import Budget


def test_the_budget_of_the_manual_reads_as_it_is_written():
    fields = parse_budget(["iterations=20,subcalls=200,tokens=200k,usd=0.50,time=10m"])

    assert fields == {
        "max_iterations": 20,
        "max_subcalls": 200,
        "max_tokens": 200_000,
        "max_cost_usd": Decimal("0.50"),
        "max_wall_time_ms": 600_000,
    }
    assert Budget.model_validate(fields).max_tokens == 200_000


@pytest.mark.parametrize(
    ("text", "field", "amount"),
    [
        ("time=90", "max_wall_time_ms", 90_000),
        ("time=1.5h", "max_wall_time_ms", 5_400_000),
        ("time=250ms", "max_wall_time_ms", 250),
        ("memory=512M", "max_sandbox_memory_bytes", 512 * 1024 * 1024),
        ("memory=2GiB", "max_sandbox_memory_bytes", 2 * 1024**3),
        ("usd=$1.25", "max_cost_usd", Decimal("1.25")),
        ("cost=2", "max_cost_usd", Decimal(2)),
        ("usd=none", "max_cost_usd", None),
        ("tokens=1_000_000", "max_tokens", 1_000_000),
        ("tokens=1.5M", "max_tokens", 1_500_000),
        ("reserve=10%", "closing_reserve", 0.1),
        ("host-calls=0", "max_host_calls", 0),
    ],
)
def test_units_are_the_ones_people_use(text, field, amount):
    assert parse_budget([text]) == {field: amount}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("iterations=many", "'many' is not an amount of iterations. Write it like iterations=20."),
        ("iterations=-1", "not an amount"),
        ("iterations=1.5", "not an amount"),
        ("iterations=0", "cannot run with no iterations"),
        ("iterations=none", "not an amount"),
        ("usd=NaN", "or usd=none for no limit"),
        ("usd=inf", "not an amount"),
        ("time=ten minutes", "Write it like time=10m"),
        ("iteration=3", "Did you mean 'iterations'?"),
        ("colour=3", "It knows iterations, subcalls"),
        ("tokens", "has no value"),
    ],
)
def test_a_budget_that_is_no_number_is_refused_with_what_to_write(text, says):
    with pytest.raises(Refusal, match="budget") as refused:
        parse_budget([text])

    assert says in str(refused.value)
    assert refused.value.code is Exit.USAGE


@given(st.text(max_size=40))
def test_any_budget_text_gives_amounts_or_a_refusal(text):
    try:
        fields = parse_budget([text])
    except Refusal:
        return
    Budget.model_validate(fields)


@given(st.integers(min_value=1, max_value=10**12))
def test_a_count_reads_back_as_itself(number):
    assert parse_budget([f"tokens={number}"]) == {"max_tokens": number}


@given(
    st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), st.text(max_size=30), max_size=4)
)
def test_labels_keep_their_text(labels):
    assert parse_labels([f"{name}={value}" for name, value in labels.items()]) == labels


def test_a_parameter_is_json_where_it_reads_as_json():
    params = parse_params(
        ["limit=40", "deep=true", "words=[1, 2]", "subject=fire safety", "note=", "odd=NaN"]
    )

    assert params == {
        "limit": 40,
        "deep": True,
        "words": [1, 2],
        "subject": "fire safety",
        "note": "",
        "odd": "NaN",
    }


@pytest.mark.parametrize("text", ["limit", "=4", "a b=4"])
def test_a_parameter_without_a_name_is_refused(text):
    with pytest.raises(Refusal, match="name=value"):
        parse_params([text])
