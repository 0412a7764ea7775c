"""A call that was refused is refused again, in the same words, when its cell is repeated."""

import asyncio

import pytest

from rlm_worker.contracts import Budget
from rlm_worker.replay import verify_replay
from tests.builders import a_spec
from tests.engine import QUICK, run_job
from tests.scripted_model import ScriptedModel

BATCH = """# %%
try:
    predict_batch("n: int -> label: Literal['x']", [{"n": i} for i in range(11)])
except BudgetExceeded as refused:
    SUBMIT(answer=str(refused))
"""
ROWS = """# %%
rows = predict_batch("n: int -> label: Literal['x']", [{"n": i} for i in range(8)])
SUBMIT(answer=str([(row.ok, row.error) for row in rows]))
"""
SINGLE = """# %%
told = []
for n in [1, 2, 1, 2]:
    try:
        told.append(predict("n: int -> label: Literal['x']", n=n).label)
    except BudgetExceeded as refused:
        told.append(str(refused))
SUBMIT(answer=str(told))
"""
NOTES = """# %%
told = []
for _ in range(4):
    try:
        told.append(bool(budget()))
    except BudgetExceeded as refused:
        told.append(str(refused))
SUBMIT(answer=str(told))
"""
REJECTED = """# %%
told = []
for _ in range(4):
    try:
        SUBMIT(answer=7)
    except Exception as refused:
        told.append(type(refused).__name__)
SUBMIT(answer=str(told))
"""


def replayed(book: str, budget: Budget):
    with ScriptedModel() as model:
        ran = run_job(a_spec(playbook=book, model=model.url, budget=budget))
    report = asyncio.run(verify_replay(ran.gateway.spec, ran.gateway.records, settings=QUICK))
    return ran, report


@pytest.mark.requirement("CARD-21")
@pytest.mark.parametrize(
    ("book", "budget", "answer"),
    [
        (BATCH, Budget(max_subcalls=10), "needs 11 subcalls"),
        (ROWS, Budget(max_tokens=1_500), "(False, 'BudgetExceeded: budget tokens"),
        (
            SINGLE,
            Budget(max_subcalls=1),
            "['x', 'budget subcalls is exhausted: limit 1, used or held 2', 'x'",
        ),
        (NOTES, Budget(max_host_calls=2), "[True, True, 'budget host_calls is exhausted"),
        (REJECTED, Budget(max_host_calls=2), "'BudgetExceeded', 'BudgetExceeded'"),
    ],
    ids=["batch", "rows", "single", "host calls", "rejected submits"],
)
def test_a_cell_that_caught_a_refusal_replays_to_the_same_answer(book, budget, answer):
    ran, report = replayed(book, budget)

    assert answer in ran.output["answer"]
    assert report.verified, report.divergence


def test_a_model_that_cannot_be_asked_is_refused_again_without_being_asked():
    book = "# %%\ntry:\n    predict('t -> n: int', t='x')\nexcept SubcallError as e:\n    SUBMIT(answer=str(e))\n"
    ran = run_job(a_spec(playbook=book, model="nobody-makes-this:model"))

    report = asyncio.run(verify_replay(ran.gateway.spec, ran.gateway.records, settings=QUICK))

    assert report.verified, report.divergence
    assert ran.result.usage.subcalls == 0


def test_refused_rows_cost_nothing_and_are_no_subcalls():
    ran, _ = replayed(ROWS, Budget(max_tokens=1_500))

    refused = [event for event in ran.of("subcall_finished") if event.error_class == "BudgetExceeded"]
    assert refused
    assert all(event.spend.input_tokens == 0 and event.requests == 0 for event in refused)
    assert ran.result.usage.subcalls == len(ran.of("subcall_started"))


def test_a_cell_that_goes_on_calling_after_refusals_cannot_fill_the_trace():
    book = """# %%
for _ in range(300):
    try:
        predict("t -> n: int", t="x")
    except BudgetExceeded:
        pass
SUBMIT(answer="done")
"""
    ran = run_job(a_spec(playbook=book, budget=Budget(max_subcalls=0)))

    assert ran.output == {"answer": "done"}
    assert len(ran.of("host_call_finished")) == 100
