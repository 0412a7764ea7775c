"""Each budget dimension ends the job with its own reason, exact usage and the whole trace."""

from decimal import Decimal

import pytest

from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import Budget
from rlm_worker.contracts.job import SandboxPolicy
from rlm_worker.models.settings import ModelSettings, PricePerMillion
from tests.builders import a_spec
from tests.engine import run_job
from tests.scripted_model import ScriptedModel, cells

DRAFTED = "# %% draft\nDRAFT(answer='so far')\n# %% spend\n"
ASK_MANY = "for i in range(50):\n    predict('n: int -> label: Literal[\"x\"]', n=i)\n"
PRICED = WorkerSettings(
    models=ModelSettings(price=PricePerMillion(input_usd=Decimal(1000), output_usd=Decimal(1000)))
)

CASES = {
    "iterations": (Budget(max_iterations=2), "x = 1\n# %% more\ny = 2\n# %% more\nz = 3\n"),
    "subcalls": (Budget(max_subcalls=5), ASK_MANY),
    "tokens": (Budget(max_tokens=3_000), ASK_MANY),
    "input_tokens": (Budget(max_input_tokens=2_000), ASK_MANY),
    "output_tokens": (Budget(max_output_tokens=200), ASK_MANY),
    "cost": (Budget(max_cost_usd=Decimal(2)), ASK_MANY),
    "wall_time": (Budget(max_wall_time_ms=1_500), "while True: pass\n"),
    "host_calls": (Budget(max_host_calls=5), "for _ in range(50): budget()\n"),
    "output_bytes": (Budget(max_output_bytes=10_000), "print('x' * 20_000)\n# %% more\nx = 1\n"),
    "sandbox_cpu": (Budget(max_sandbox_cpu_ms=1_000), "sum(i * i for i in range(10**9))\n# %% more\nx = 1\n"),
    "sandbox_memory": (Budget(max_sandbox_memory_bytes=150_000_000), "x = bytearray(10**9)\n"),
}


@pytest.mark.requirement(
    "N3-FAIL-2", "N3-FAIL-8", "LESSON-26", "CARD-14", "CARD-19", "S3-BOUND-15", "S2-FAQ-5", "N3-PLAN-3"
)
@pytest.mark.parametrize("dimension", CASES)
def test_a_limit_ends_the_job_with_its_reason_and_the_last_draft(dimension):
    budget, spend = CASES[dimension]
    with ScriptedModel() as model:
        ran = run_job(a_spec(playbook=DRAFTED + spend, model=model.url, budget=budget), settings=PRICED)

    assert ran.result.status == "partial", ran.result.message
    assert ran.result.limit == dimension
    assert (ran.output, ran.result.answered_by) == ({"answer": "so far"}, "draft")
    assert [event.dimension for event in ran.of("budget_exhausted")] == [dimension]
    assert ran.events[-1].kind == "attempt_ended"


@pytest.mark.requirement("S2-FAQ-4")
@pytest.mark.parametrize("dimension", ["subcalls", "tokens", "input_tokens", "output_tokens", "cost"])
def test_no_limit_on_calls_is_ever_passed(dimension):
    budget, _ = CASES[dimension]
    batch = "predict_batch('n: int -> label: Literal[\"x\"]', [{'n': i} for i in range(40)])\n"
    with ScriptedModel(latency_seconds=0.002) as model:
        ran = run_job(
            a_spec(playbook="# %%\n" + ASK_MANY + batch, model=model.url, budget=budget), settings=PRICED
        )

    usage = ran.result.usage
    assert usage.subcalls <= budget.max_subcalls
    assert usage.tokens <= (budget.max_tokens or usage.tokens)
    assert usage.input_tokens <= (budget.max_input_tokens or usage.input_tokens)
    assert usage.output_tokens <= (budget.max_output_tokens or usage.output_tokens)
    assert usage.cost_usd <= (budget.max_cost_usd or usage.cost_usd)
    assert usage.input_tokens == sum(call.spend.input_tokens for call in ran.of("subcall_finished"))


@pytest.mark.requirement("S2-FAQ-5")
def test_without_a_draft_a_limit_fails_the_job_as_budget_exhausted():
    with ScriptedModel() as model:
        ran = run_job(a_spec(playbook="# %%\n" + ASK_MANY, model=model.url, budget=Budget(max_subcalls=5)))

    assert (ran.result.status, ran.result.failure_class, ran.result.limit) == (
        "failed",
        "budget_exhausted",
        "subcalls",
    )
    assert ran.result.usage.subcalls == 5


def test_a_batch_larger_than_what_is_left_is_refused_before_anything_is_spent():
    book = """# %%
try:
    predict_batch("n: int -> label: Literal['x']", [{"n": i} for i in range(11)])
except BudgetExceeded as refused:
    SUBMIT(answer=str(refused))
"""
    with ScriptedModel() as model:
        ran = run_job(a_spec(playbook=book, model=model.url, budget=Budget(max_subcalls=10)))
        asked = model.calls

    assert asked == 0
    assert "needs 11" in ran.output["answer"]
    assert "10 are left" in ran.output["answer"]


def test_an_unknown_price_is_refused_when_cost_is_limited_and_allowed_when_only_tokens_are():
    book = "# %%\nSUBMIT(answer=predict('t -> label: Literal[\"x\"]', t='a').label)\n"
    unpriced = "http://model.invalid:1/v1#nobody-prices-this"

    by_cost = run_job(a_spec(playbook=book, model=unpriced, budget=Budget(max_cost_usd=Decimal(1))))

    assert by_cost.result.limit == "cost"
    assert "price of this model is unknown" in by_cost.result.message


def test_depth_is_a_limit_of_its_own():
    code = "rlm_query('go deeper', signature='-> n: int')"
    with ScriptedModel(cells(code, "SUBMIT(answer='closed')")) as model:
        ran = run_job(a_spec(model=model.url, budget=Budget(max_depth=0)))

    assert (ran.result.status, ran.result.limit) == ("partial", "depth")
    assert (ran.output, ran.result.answered_by) == ({"answer": "closed"}, "submit")


def test_a_model_gets_a_closing_turn_from_the_reserve():
    code = "rs = [predict('n: int -> label: Literal[\"x\"]', n=i) for i in range(99)]"
    with ScriptedModel(cells(code, "SUBMIT(answer='what I have')")) as model:
        ran = run_job(a_spec(model=model.url, budget=Budget(max_subcalls=3)))
        told = model.requests[-1]["messages"][-1]["content"]

    assert (ran.result.status, ran.result.limit) == ("partial", "subcalls")
    assert ran.output == {"answer": "what I have"}
    assert "closing turn" in told


@pytest.mark.requirement("S2-FAQ-3")
def test_a_model_that_never_submits_ends_at_its_last_iteration():
    with ScriptedModel(cells(*(f"x = {i}" for i in range(10)))) as model:
        ran = run_job(a_spec(model=model.url, budget=Budget(max_iterations=4)))
        told = model.requests[-1]["messages"][-1]["content"]

    assert (ran.result.status, ran.result.limit) == ("failed", "iterations")
    assert ran.result.usage.iterations == 4
    assert "last turn" in told


def test_a_submit_in_the_turn_that_crosses_a_limit_wins():
    book = "# %%\nprint('x' * 20_000)\nSUBMIT(answer='in time')\n"
    ran = run_job(a_spec(playbook=book, budget=Budget(max_output_bytes=10_000)))

    assert (ran.result.status, ran.output) == ("succeeded", {"answer": "in time"})


@pytest.mark.requirement("N3-PLAN-3")
@pytest.mark.parametrize("code", ["while True: pass", "sum(range(10**11))"])
def test_a_cell_that_runs_too_long_is_stopped_and_earlier_variables_survive(code):
    with ScriptedModel(cells("kept = 'still here'", code, "SUBMIT(answer=kept)")) as model:
        ran = run_job(a_spec(model=model.url, sandbox_policy=SandboxPolicy(cell_seconds=0.5)))

    assert ran.output == {"answer": "still here"}
    assert ran.of("cell_finished")[1].outcome == "timed_out"
