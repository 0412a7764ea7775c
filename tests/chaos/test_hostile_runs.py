"""Hostile cells and hostile models, on the real control plane: each ends labelled, with a whole trace and exact sums."""

import random

import pytest

from controlplane.bootstrap import open_app
from controlplane.config import Settings
from controlplane.domain.budget import NOTHING
from controlplane.domain.commands import JobRequest
from controlplane.domain.identity import EVERY_TENANT
from controlplane.views import JobView
from rlm_worker.actor import Runner
from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import Budget
from rlm_worker.contracts.job import ModelDriver, SandboxPolicy
from rlm_worker.contracts.signature import fields_schema
from rlm_worker.job import Parts
from tests.integration.worker.test_stop_and_resume import children_of_this_process, wait_for
from tests.scripted_model import Answer, Cut, Fault, Hang, Raw, ScriptedModel, cells, schema_of

SETTINGS = WorkerSettings(retry_seconds=0.01, stop_grace_seconds=1.0)
SHORT = Budget(max_wall_time_ms=6_000, closing_reserve=0.5)
CELLS = SandboxPolicy(cell_seconds=1.0)


@pytest.fixture
def app(tmp_path):
    app = open_app(Settings(home=tmp_path / "home"))
    yield app
    app.close()


def run(app, model: ScriptedModel, *, settings: WorkerSettings = SETTINGS, **fields) -> JobView:
    """One job from submit to its end, parked as often as it has to."""
    request = {
        "task": "What is in the evidence?",
        "output_schema": fields_schema("answer: str"),
        "budget": SHORT,
        "driver": ModelDriver(model=model.url),
        "sub_model": model.url,
        "sandbox_policy": CELLS,
        **fields,
    }
    job_id = app.submit(JobRequest(**request)).job_id
    runner = Runner(Parts(gateway=app.gateway(), worker_id="elsewhere/hostile/1/1", settings=settings))
    for _ in range(40):
        view = app.job(job_id)
        if view.is_terminal:
            break
        if view.state == "parked":
            app.unpark(job_id, by="tester")
            view = app.job(job_id)
        runner.run(job_id, view.generation)
    return app.job(job_id)


def check_books(app, view: JobView) -> None:
    """The trace is whole and its calls add up to what the result, the job and the tenant say; nothing is held."""
    assert view.is_terminal
    assert view.result is not None
    assert app.verify_trace(view.job_id) == view.trace_events == view.result.trace_ref.events
    assert app.verify_receipts(view.task_id) > 0
    events = [record.typed() for record in app.trace(view.job_id, limit=10_000)]
    assert events[-1].kind == "attempt_ended"
    spent = [event.spend for event in events if event.kind in ("model_answered", "subcall_finished")]
    spent += [event.charged for event in events if event.kind == "subcall_lost"]
    usage = view.result.usage
    assert usage.input_tokens == sum(spend.input_tokens for spend in spent)
    assert usage.output_tokens == sum(spend.output_tokens for spend in spent)
    asked = {event.ordinal for event in events if event.kind in ("model_asked", "subcall_started")}
    answered = {
        event.ordinal
        for event in events
        if event.kind in ("model_answered", "subcall_finished", "subcall_lost")
    }
    assert asked <= answered, "a hold without an end"
    with app.store.read() as tx:
        tenant = tx.budgets.get("tenant:local")
        row = tx.jobs.get(view.job_id, scope=EVERY_TENANT)
    assert row.account.held == NOTHING
    assert tenant.held == NOTHING
    assert (tenant.spent.input_tokens, tenant.spent.output_tokens) == (
        usage.input_tokens,
        usage.output_tokens,
    )


FORK_BOMB = """
import os, threading
def forever():
    while True:
        try:
            os.fork()
        except OSError:
            pass
for _ in range(8):
    threading.Thread(target=forever, daemon=True).start()
forever()
"""

CELLS_THAT_HURT = {
    "an endless loop": ("while True: pass", "timed_out"),
    "an endless loop that catches everything": (
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "timed_out",
    ),
    "a fork bomb": (FORK_BOMB, None),
    "4 GB at once": ("x = bytearray(4 * 1024**3)", "error"),
    "4 GB bit by bit": ("x = []\nwhile True: x.append(bytes(10_000_000))", None),
    "endless output": ("while True: print('x' * 1000)", None),
}


@pytest.mark.requirement("LESSON-26", "S3-BOUND-6")
@pytest.mark.parametrize("name", CELLS_THAT_HURT)
def test_a_cell_that_hurts_is_an_observation_and_the_job_still_answers(app, name):
    code, outcome = CELLS_THAT_HURT[name]
    with ScriptedModel(cells("kept = 'still here'", code, "SUBMIT(answer=kept)")) as model:
        before = children_of_this_process()
        view = run(app, model, budget=Budget(max_wall_time_ms=60_000, max_sandbox_memory_bytes=300_000_000))

    assert view.result is not None
    assert view.state in ("succeeded", "partial"), view.result.message
    assert view.result.structured_output == {"answer": "still here"}
    finished = [e.typed() for e in app.trace(view.job_id, limit=1_000) if e.kind == "cell_finished"]
    assert finished[1].outcome == outcome or (outcome is None and finished[1].outcome != "ok")
    check_books(app, view)
    # The zygote and the helper that watches over frozen workers are ours; nothing of the sandboxes is left.
    wait_for(lambda: len(children_of_this_process() - before) <= 2, seconds=10)


def never_submits(request, n):
    return {"answer": "read from the history"} if schema_of(request) else f"```python\nprint({n})\n```"


def answers_garbage(request, n):
    replies = (
        "",
        "\x00\x01",
        "no code here",
        "```python\n((((\n```",
        "{" * 500,
        "```",
        "SUBMIT(answer='not code')",
    )
    return replies[n % len(replies)]


BROKEN = Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnot json!")

MODELS_THAT_HURT = {
    "never submits": (never_submits, Budget(max_iterations=4), ("partial", "partial_success", "iterations")),
    # Whichever is found first: that it gets nowhere, or that its turns are used up.
    "answers garbage": (answers_garbage, Budget(max_iterations=6), ("failed", "model_error", None)),
    "breaks the protocol": (lambda request, n: BROKEN, Budget(), ("failed", "model_error", None)),
    "hangs": (lambda request, n: Hang(), SHORT, ("failed", "budget_exhausted", "wall_time")),
    "cuts every answer": (lambda request, n: Cut(60), Budget(), ("failed", "model_error", None)),
    "fails every call": (lambda request, n: Fault(500, "oops"), Budget(), ("failed", "model_error", None)),
    "refuses": (lambda request, n: Answer("", refusal="no"), Budget(), ("failed", "model_error", None)),
    "knows no such key": (lambda request, n: Fault(401, "who?"), Budget(), ("failed", "model_error", None)),
    "says it used nothing": (
        lambda request, n: Answer("```python\nSUBMIT(answer='free')\n```", usage={"prompt_tokens": -5}),
        Budget(),
        ("succeeded", None, None),
    ),
}


ALSO = {"answers garbage": [("failed", "budget_exhausted", "iterations")]}


@pytest.mark.requirement("LESSON-14", "LESSON-26", "N3-FAIL-8")
@pytest.mark.parametrize("name", MODELS_THAT_HURT)
def test_a_model_that_hurts_ends_in_its_labelled_outcome(app, name):
    script, budget, labelled = MODELS_THAT_HURT[name]
    with ScriptedModel(script) as model:
        view = run(app, model, budget=budget)

    assert view.result is not None
    seen = (view.result.status, view.result.failure_class, view.result.limit)
    assert seen in (labelled, *ALSO.get(name, ())), view.result.message
    assert view.result.status == "succeeded" or view.result.message
    if name == "never submits":
        assert view.result.answered_by == "extracted"
    check_books(app, view)


@pytest.mark.requirement("LESSON-14")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_provider_that_fails_three_of_ten_calls_does_not_hinder_the_answer(app, seed):
    chance = random.Random(seed)
    faults = [
        Fault(429, {"error": {"message": "slow"}}, {"Retry-After": "0.01"}),
        Fault(429, {"error": {"message": "slow"}}, {"Retry-After": "600"}),
        Fault(500, "oops"),
        Fault(503, "busy"),
        Cut(0),
        Cut(80),
    ]
    failed = []
    turns = [
        "rows = [{'n': i} for i in range(60)]\nlabels = predict_batch(\"n: int -> label: Literal['x','y']\", rows)",
        "labels = predict_batch(\"n: int -> label: Literal['x','y']\", rows)\nprint(sum(r.ok for r in labels))",
        "SUBMIT(answer=str(sum(r.ok for r in labels)))",
    ]

    def script(request, n):
        if chance.random() < 0.3:
            failed.append(n)
            return chance.choice(faults)
        if schema_of(request) is not None:
            return {"label": "x"}
        said = sum(message["role"] == "assistant" for message in request["messages"])
        return f"```python\n{turns[min(said, 2)]}\n```"

    budget = Budget(max_subcalls=500, max_wall_time_ms=60_000)
    settings = WorkerSettings(retry_seconds=0.01, retries=6, parks_in_a_row=30, subcalls_in_flight=8)
    with ScriptedModel(script) as model:
        view = run(app, model, budget=budget, settings=settings)
        asked = model.calls

    assert view.result is not None
    assert view.state == "succeeded", view.result.message
    assert view.result.structured_output == {"answer": "60"}
    assert len(failed) > 0.1 * asked
    check_books(app, view)
