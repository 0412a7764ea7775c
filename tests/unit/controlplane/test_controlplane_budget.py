"""Budgets: hold, settle, release."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain import budget
from controlplane.domain.budget import Account, Amounts, Limits
from controlplane.errors import OverBudget
from tests.integration.controlplane.hands import KEY, answered, asked

LIMITS = Limits(subcalls=5, input_tokens=400, output_tokens=300, tokens=600, cost_nano_usd=900_000)


def events(*made) -> list[dict]:
    return [event.model_dump(mode="json") for event in made]


calls = st.lists(
    st.tuples(
        st.integers(0, 8),
        st.integers(0, 150),
        st.integers(0, 100),
        st.decimals("0", "0.0003", places=7),
        st.booleans(),
    ),
    max_size=30,
)


@given(calls)
def test_spent_and_held_never_pass_a_limit_while_a_spend_fits_its_hold(plan):
    account = Account(limits=LIMITS)
    for ordinal, tokens_in, tokens_out, cost, finishes in plan:
        if finishes and ordinal in account.open:
            event = answered(ordinal, input_tokens=0, output_tokens=0, cost_usd="0")
        else:
            event = asked(ordinal, input_tokens=tokens_in, output_tokens=tokens_out, cost_usd=cost)
        before = account
        try:
            account = budget.metered(account, events(event))
        except OverBudget:
            assert account is before
        assert LIMITS.exceeded_by(account.used) == ""
        assert sum(amount.subcalls for amount in account.open.values()) == account.held.subcalls
        assert account.held == sum_of(account.open.values())


def sum_of(amounts) -> Amounts:
    total = Amounts()
    for amount in amounts:
        total = total.plus(amount)
    return total


@given(calls, st.integers(1, 7))
def test_folding_in_groups_gives_the_same_account(plan, size):
    made = events(
        *(
            answered(ordinal, input_tokens=tokens_in) if finishes else asked(ordinal, input_tokens=tokens_in)
            for ordinal, tokens_in, _, _, finishes in plan
        )
    )
    whole = budget.metered(Account(), made)
    grouped = Account()
    for start in range(0, len(made), size):
        grouped = budget.metered(grouped, made[start : start + size])
    assert grouped == whole


@pytest.mark.parametrize(
    ("hold", "named"),
    [
        ({"input_tokens": 401, "output_tokens": 0}, "input_tokens"),
        ({"input_tokens": 0, "output_tokens": 301}, "output_tokens"),
        ({"input_tokens": 350, "output_tokens": 260}, "tokens"),
        ({"cost_usd": "0.000901"}, "cost_usd: 0.000901 of 0.0009"),
        ({"subcalls": 6}, "subcalls"),
    ],
)
def test_each_dimension_refuses_with_its_own_name(hold, named):
    with pytest.raises(OverBudget, match=f"limit of {named}"):
        budget.metered(Account(limits=LIMITS), events(asked(0, **hold)))


def test_an_unknown_price_is_refused_only_under_a_limit_in_money():
    unknown = events(asked(0, cost_usd=None))

    with pytest.raises(OverBudget, match="price"):
        budget.metered(Account(limits=LIMITS), unknown)
    held = budget.metered(Account(), unknown)
    assert held.is_priced
    assert not budget.metered(held, events(answered(0, cost_usd=None))).is_priced
    assert not budget.metered(held, unknown).is_priced, "the first of the two calls is charged"
    lost = {"kind": "subcall_lost", "ordinal": 0, "key": KEY, "charged": unknown[0]["hold"]}
    assert not budget.metered(held, [lost]).is_priced
    assert budget.metered(held, events(answered(0, cost_usd="0.1"))).is_priced


def test_a_call_asked_for_again_charges_the_first_whose_outcome_is_unknown():
    account = budget.metered(Account(), events(asked(1), asked(1), answered(1)))

    assert account.spent == Amounts(2, 180, 60, 0)
    assert account.held == Amounts()


def test_a_lost_call_is_charged_its_hold():
    charged = {"kind": "subcall_lost", "ordinal": 1, "key": KEY, "charged": events(asked(1))[0]["hold"]}

    account = budget.metered(budget.metered(Account(), events(asked(1))), [charged])

    assert account.spent == Amounts(1, 100, 50, 0)
    assert account.held == Amounts()


def test_closing_an_account_charges_what_is_still_open():
    assert budget.closed(budget.metered(Account(), events(asked(1)))).spent.input_tokens == 100


def test_money_is_never_rounded_down():
    assert budget.nano_usd(Decimal("0.0000000001")) == 1


@given(st.lists(st.integers(0, 10**12), max_size=50))
def test_money_in_whole_billionths_adds_up_exactly(costs):
    spends = [answered(n, cost_usd=Decimal(cost).scaleb(-9)) for n, cost in enumerate(costs)]

    account = budget.metered(Account(), events(*spends))

    assert account.spent.cost_nano_usd == sum(costs)


def test_a_limited_tenant_takes_no_job_without_limits():
    assert "same units" in budget.misfit(Limits(subcalls=1), above=Limits(cost_nano_usd=10))


@pytest.mark.parametrize(
    ("limits", "above", "fits"),
    [
        (Limits(tokens=60), Limits(tokens=60), True),
        (Limits(tokens=61), Limits(tokens=60), False),
        (Limits(tokens=60, input_tokens=50), Limits(tokens=60), True),
        (Limits(tokens=60), Limits(tokens=100, output_tokens=60), False),
        (Limits(subcalls=3), Limits(subcalls=2), False),
        (Limits(), Limits(), True),
    ],
)
def test_a_job_fits_a_tenant_that_it_cannot_exhaust(limits, above, fits):
    assert (budget.misfit(limits, above=above) == "") is fits
