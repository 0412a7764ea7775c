"""The budget while a job runs: never passed at any level, exact when settled, the same after a crash."""

from decimal import Decimal
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rlm_worker.contracts import Budget
from rlm_worker.contracts.job import Dimension
from rlm_worker.contracts.trace import (
    CellFinished,
    ChildStarted,
    DraftRecorded,
    Hold,
    HostCallFinished,
    ModelAnswered,
    ModelAsked,
    ProposalMade,
    Spend,
    SubcallFinished,
    SubcallLost,
    SubcallStarted,
    SubmitRejected,
)
from rlm_worker.errors import BudgetExceeded
from rlm_worker.meter import SHOWN_AS, Meter, whole

KEY = "0" * 64
LIMITS = {
    "max_subcalls": 12,
    "max_tokens": 900,
    "max_input_tokens": 600,
    "max_output_tokens": 500,
    "max_cost_usd": Decimal("0.9"),
}


def usage_of(meter: Meter):
    tally = meter._tally
    return {
        "subcalls": tally.subcalls,
        "input": tally.input_tokens + tally.held_input,
        "output": tally.output_tokens + tally.held_output,
        "cost": (tally.cost or Decimal(0)) + tally.held_cost,
    }


class Spending(RuleBasedStateMachine):
    """Holds, settlements and charges at the levels of a chain job → child → grandchild, in any order."""

    def __init__(self) -> None:
        super().__init__()
        job = Meter(Budget(**LIMITS))
        child = Meter(Budget(**{**LIMITS, "max_subcalls": 8, "max_tokens": 500}), parent=job)
        self.levels = [job, child, Meter(Budget(max_subcalls=5, max_input_tokens=200), parent=child)]
        self.open: dict[int, tuple[int, Hold]] = {}
        self.spent: list[tuple[int, Spend]] = []
        self.ordinal = 0

    @rule(
        level=st.integers(0, 2),
        subcalls=st.integers(0, 3),
        tokens=st.tuples(st.integers(0, 200), st.integers(0, 200)),
        cents=st.integers(0, 30),
    )
    def hold(self, level, subcalls, tokens, cents):
        self.ordinal += 1
        hold = Hold(
            subcalls=subcalls,
            input_tokens=tokens[0],
            output_tokens=tokens[1],
            cost_usd=Decimal(cents) / 100,
        )
        before = [usage_of(meter) for meter in self.levels]
        try:
            self.levels[level].hold(self.ordinal, hold, model="m")
        except BudgetExceeded:
            assert [usage_of(meter) for meter in self.levels] == before
        else:
            self.open[self.ordinal] = (level, hold)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def settle(self, data):
        ordinal = data.draw(st.sampled_from(sorted(self.open)))
        level, hold = self.open.pop(ordinal)
        spend = Spend(
            input_tokens=data.draw(st.integers(0, hold.input_tokens)),
            output_tokens=data.draw(st.integers(0, hold.output_tokens)),
            cost_usd=hold.cost_usd,
        )
        self.levels[level].settle(ordinal, spend)
        self.spent.append((level, spend))

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def charge(self, data):
        ordinal = data.draw(st.sampled_from(sorted(self.open)))
        level, hold = self.open.pop(ordinal)
        assert self.levels[level].charge(ordinal) == hold
        self.spent.append((level, whole(hold)))

    @invariant()
    def no_limit_is_passed_at_any_level(self):
        for meter in self.levels:
            used, budget = usage_of(meter), meter.budget
            assert used["subcalls"] <= budget.max_subcalls
            assert budget.max_input_tokens is None or used["input"] <= budget.max_input_tokens
            assert budget.max_output_tokens is None or used["output"] <= budget.max_output_tokens
            assert budget.max_tokens is None or used["input"] + used["output"] <= budget.max_tokens
            assert budget.max_cost_usd is None or used["cost"] <= budget.max_cost_usd

    @invariant()
    def usage_is_the_sum_of_what_was_spent_there_and_below(self):
        for number, meter in enumerate(self.levels):
            below = [spend for level, spend in self.spent if level >= number]
            usage = meter.usage()
            assert usage.input_tokens == sum(spend.input_tokens for spend in below)
            assert usage.output_tokens == sum(spend.output_tokens for spend in below)
            assert usage.cost_usd == sum((spend.cost_usd for spend in below), Decimal(0))
            assert sum(model.calls for model in usage.by_model.values()) == len(below)

    @invariant()
    def what_is_held_is_what_is_open(self):
        for number, meter in enumerate(self.levels):
            below = [hold for level, hold in self.open.values() if level >= number]
            assert meter._tally.held_input == sum(hold.input_tokens for hold in below)
            assert meter._tally.held_cost == sum((hold.cost_usd for hold in below), Decimal(0))


Spending.TestCase.settings = settings(max_examples=40, stateful_step_count=30)
TestSpending = Spending.TestCase


@pytest.mark.parametrize(
    ("dimension", "budget", "hold"),
    [
        ("subcalls", Budget(max_subcalls=1), Hold(subcalls=2)),
        ("tokens", Budget(max_tokens=10), Hold(input_tokens=6, output_tokens=5)),
        ("input_tokens", Budget(max_input_tokens=10), Hold(input_tokens=11)),
        ("output_tokens", Budget(max_output_tokens=10), Hold(output_tokens=11)),
        ("cost", Budget(max_cost_usd=Decimal("0.1")), Hold(cost_usd=Decimal("0.11"))),
        ("cost", Budget(max_cost_usd=Decimal("0.1")), Hold(cost_usd=None)),
    ],
)
def test_each_dimension_refuses_by_its_own_name(dimension, budget, hold):
    meter = Meter(budget)

    assert meter.can_hold(hold).dimension == dimension
    with pytest.raises(BudgetExceeded) as refused:
        meter.hold(1, hold, model="m")

    assert refused.value.dimension == dimension
    assert meter.usage().subcalls == 0


def test_a_limit_of_an_ancestor_refuses_a_child():
    child = Meter(Budget(max_subcalls=100), parent=Meter(Budget(max_subcalls=1)))

    with pytest.raises(BudgetExceeded):
        child.hold(1, Hold(subcalls=2), model="m")


def test_the_closing_reserve_is_for_the_closing_turn_alone():
    meter = Meter(Budget(max_tokens=100, closing_reserve=0.2), has_closing_turn=True)
    meter.hold(1, Hold(input_tokens=80), model="m")

    with pytest.raises(BudgetExceeded):
        meter.hold(2, Hold(input_tokens=1), model="m")
    meter.open_reserve()
    meter.hold(2, Hold(input_tokens=20), model="m")

    with pytest.raises(BudgetExceeded):
        meter.hold(3, Hold(input_tokens=1), model="m")


def test_a_child_that_closes_does_not_open_the_reserve_of_its_parent():
    parent = Meter(Budget(max_tokens=100, closing_reserve=0.2), has_closing_turn=True)
    child = Meter(Budget(max_tokens=100, closing_reserve=0.2), parent=parent, has_closing_turn=True)

    child.open_reserve()

    with pytest.raises(BudgetExceeded):
        child.hold(1, Hold(input_tokens=90), model="m")


def test_without_a_closing_turn_nothing_is_kept_back():
    Meter(Budget(max_tokens=100, closing_reserve=0.5)).hold(1, Hold(input_tokens=100), model="m")


def test_one_call_of_unknown_price_makes_the_whole_cost_unknown():
    meter = Meter(Budget())
    meter.hold(1, Hold(cost_usd=None), model="m")
    meter.settle(1, Spend(cost_usd=None))
    meter.hold(2, Hold(cost_usd=Decimal(1)), model="m")
    meter.settle(2, Spend(cost_usd=Decimal(1)))

    assert meter.usage().cost_usd is None


def test_wall_time_is_that_of_the_tightest_level_and_counts_earlier_attempts():
    now = [100.0]
    parent = Meter(Budget(max_wall_time_ms=10_000), already_ms=4_000, clock=lambda: now[0])
    child = Meter(Budget(max_wall_time_ms=60_000), parent=parent, clock=lambda: now[0])
    now[0] += 2

    assert child.seconds_left() == pytest.approx(4)
    assert parent.usage().wall_time_ms == 6_000


def a_cell() -> CellFinished:
    return CellFinished(
        iteration=1,
        outcome="ok",
        stdout="",
        stderr="",
        stdout_bytes=30,
        stderr_bytes=12,
        cpu_ms=7,
        memory_bytes=99,
        digest=KEY,
    )


HOLDS = st.builds(
    Hold,
    subcalls=st.just(1),
    input_tokens=st.integers(0, 50),
    output_tokens=st.integers(0, 50),
    cost_usd=st.none() | st.integers(0, 9).map(Decimal),
)
SPENDS = st.builds(
    Spend,
    input_tokens=st.integers(0, 50),
    output_tokens=st.integers(0, 50),
    cost_usd=st.integers(0, 9).map(Decimal),
)
ACTS = st.one_of(
    st.tuples(st.just("subcall"), HOLDS, st.none() | SPENDS),
    st.tuples(st.just("turn"), HOLDS, st.none() | SPENDS),
    st.tuples(st.sampled_from(["cell", "draft", "note", "budget", "rejected", "refused", "unheld", "child"])),
)


def play(meter: Meter, ordinal: int, act):
    """Do one thing live, and give the events that record it."""
    match act:
        case "subcall", hold, spend:
            meter.hold(ordinal, hold, model="s")
            said = {"iteration": 1, "ordinal": ordinal, "key": KEY, "model": "s"}
            yield SubcallStarted(**said, signature="", inputs={}, hold=hold)
            if spend is None:
                yield SubcallLost(ordinal=ordinal, key=KEY, charged=meter.charge(ordinal))
            else:
                meter.settle(ordinal, spend)
                yield SubcallFinished(**said, ok=True, spend=spend)
        case "turn", hold, spend:
            hold = hold.model_copy(update={"subcalls": 0})
            meter.hold(ordinal, hold, model="r")
            said = {"iteration": 1, "ordinal": ordinal, "model": "r"}
            yield ModelAsked(**said, prompt_digest=KEY, hold=hold)
            meter.settle(ordinal, spend or whole(hold))
            yield ModelAnswered(**said, text="", spend=spend or whole(hold), ok=spend is not None)
        case ("cell",):
            meter.count_cell(output_bytes=42, cpu_ms=7, memory_bytes=99)
            yield a_cell()
        case ("child",):
            meter.check_depth(1)
            yield ChildStarted(
                iteration=1, ordinal=ordinal, key=KEY, child_id=f"child.{ordinal}", task="t", request={}
            )
        case ("unheld",):
            yield SubcallFinished(
                iteration=1, ordinal=ordinal, key=KEY, model="s", ok=False, requests=0, spend=Spend()
            )
        case ("refused",):
            yield HostCallFinished(
                iteration=1, ordinal=ordinal, name="predict", payload_digest=KEY, ok=False, error="no"
            )
        case (counted,):
            meter.count_host_call()
            yield {
                "draft": DraftRecorded(iteration=1, fields={}),
                "note": ProposalMade(iteration=1, proposal={"kind": "note", "body": {}}),
                "budget": HostCallFinished(iteration=1, ordinal=ordinal, name="budget", payload_digest=KEY),
                "rejected": SubmitRejected(iteration=1, fields={}, errors=()),
            }[counted]


@given(st.lists(ACTS, max_size=20))
def test_a_meter_restored_from_the_record_stands_where_the_live_one_stood(acts):
    live = Meter(Budget(), clock=lambda: 0.0)
    events = [event for ordinal, act in enumerate(acts, 1) for event in play(live, ordinal, act)]

    restored = Meter(Budget(), clock=lambda: 0.0)
    for event in events:
        restored.restore(event)

    assert restored.usage() == live.usage()
    assert restored._tally == live._tally


def test_a_call_that_was_open_when_its_worker_died_stays_held_until_it_is_charged():
    hold = Hold(subcalls=1, input_tokens=70)
    restored = Meter(Budget(max_tokens=100))
    restored.restore(
        SubcallStarted(iteration=1, ordinal=4, key=KEY, model="m", signature="", inputs={}, hold=hold)
    )

    assert restored.can_hold(Hold(input_tokens=31)) is not None
    restored.charge(4)

    assert restored.usage().input_tokens == 70


def test_iterations_and_host_calls_are_limited_at_every_level():
    parent = Meter(Budget(max_iterations=2, max_host_calls=1))
    child = Meter(Budget(max_iterations=9), parent=parent)
    child.begin_iteration()
    parent.begin_iteration()
    child.count_host_call()

    with pytest.raises(BudgetExceeded) as iterations:
        child.begin_iteration()
    with pytest.raises(BudgetExceeded) as host_calls:
        parent.count_host_call()

    assert (iterations.value.dimension, host_calls.value.dimension) == ("iterations", "host_calls")
    assert child.usage().iterations == 1


@pytest.mark.parametrize(
    ("budget", "cell", "dimension"),
    [
        (Budget(max_output_bytes=10), {"output_bytes": 11, "cpu_ms": 0, "memory_bytes": 0}, "output_bytes"),
        (Budget(max_sandbox_cpu_ms=10), {"output_bytes": 0, "cpu_ms": 11, "memory_bytes": 0}, "sandbox_cpu"),
    ],
)
def test_what_cells_used_is_checked_after_them(budget, cell, dimension):
    meter = Meter(budget)
    meter.count_cell(**cell)

    with pytest.raises(BudgetExceeded) as refused:
        meter.check_cell()

    assert refused.value.dimension == dimension


def test_depth_is_limited_and_remembered():
    meter = Meter(Budget(max_depth=2))
    meter.check_depth(2)

    with pytest.raises(BudgetExceeded):
        meter.check_depth(3)

    assert meter.usage().depth == 2


def test_what_is_left_counts_what_is_held():
    meter = Meter(Budget(max_tokens=100, max_cost_usd=Decimal(1), max_subcalls=5))
    meter.hold(1, Hold(subcalls=2, input_tokens=30, output_tokens=10, cost_usd=Decimal("0.25")), model="m")

    left = meter.left()

    assert (left["tokens"], left["usd"], left["subcalls"]) == (60, "0.75", 3)


def test_every_dimension_is_shown_with_what_is_left():
    meter = Meter(Budget(max_tokens=100, max_cost_usd=Decimal(1)))

    assert set(SHOWN_AS) == set(get_args(Dimension))
    assert set(meter.left()) == set(SHOWN_AS.values())


def test_what_is_left_is_what_the_level_with_least_has():
    parent = Meter(Budget(max_subcalls=10, max_tokens=100, max_depth=3))
    child = Meter(Budget(max_subcalls=8, max_depth=3), parent=parent)
    parent.hold(1, Hold(subcalls=7, input_tokens=30), model="m")

    left = child.left()

    assert (left["subcalls"], left["tokens"], left["depth"], left["usd"]) == (3, 70, 2, None)


def test_what_can_be_spent_leaves_out_the_reserve():
    meter = Meter(Budget(max_tokens=100, closing_reserve=0.2), has_closing_turn=True)

    assert (meter.left()["tokens"], meter.spendable()["tokens"]) == (100, 80)


def test_time_is_kept_for_the_closing_turn_and_given_when_it_comes():
    now = [0.0]
    budget = Budget(max_wall_time_ms=100_000, closing_reserve=0.05)
    meter = Meter(budget, has_closing_turn=True, closing_seconds=10, clock=lambda: now[0])

    assert (meter.seconds_left(), meter.hard_seconds_left()) == (90, 100)
    now[0] = 91.0
    with pytest.raises(BudgetExceeded, match="wall_time"):
        meter.check_time()
    meter.open_reserve()
    meter.check_time()
    assert meter.seconds_left() == 9


@pytest.mark.parametrize(
    ("wall_ms", "reserve", "least", "kept"),
    [(100_000, 0.2, 10, 20), (100_000, 0.01, 10, 10), (8_000, 0.05, 10, 4), (100_000, 0, 10, 0)],
)
def test_the_time_kept_is_a_share_enough_for_an_answer_and_never_more_than_half(
    wall_ms, reserve, least, kept
):
    budget = Budget(max_wall_time_ms=wall_ms, closing_reserve=reserve)
    meter = Meter(budget, has_closing_turn=True, closing_seconds=least, clock=lambda: 0.0)

    assert meter.hard_seconds_left() - meter.seconds_left() == pytest.approx(kept)


def test_a_child_ends_before_the_time_that_its_parent_keeps():
    budget = Budget(max_wall_time_ms=100_000, closing_reserve=0.1)
    parent = Meter(budget, has_closing_turn=True, clock=lambda: 0.0)
    child = Meter(budget, parent=parent, has_closing_turn=True, clock=lambda: 0.0)

    assert (child.seconds_left(), child.hard_seconds_left()) == (90, 90)
