"""The closing turn: time is kept for it, a stop leaves a moment for it, and the last resort after it is labelled."""

import asyncio
import time

import pytest

from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import Budget
from rlm_worker.replay import verify_replay
from tests.builders import a_spec, evidence_of
from tests.engine import QUICK, Ran, attempt, run_job, start
from tests.integration.worker.test_model_errors import sums_are_exact
from tests.integration.worker.test_stop_and_resume import kinds, wait_for
from tests.memory_gateway import MemoryGateway
from tests.scripted_model import Answer, Hang, ScriptedModel, cells, schema_of

SHORT = Budget(max_wall_time_ms=8_000, closing_reserve=0.5)
CLOSED = "SUBMIT(answer=kept)"


def replayed(ran: Ran):
    return asyncio.run(verify_replay(ran.gateway.spec, ran.gateway.records, settings=QUICK))


class TestWallTime:
    @pytest.mark.requirement("CARD-14", "S3-BOUND-15")
    @pytest.mark.parametrize(
        "code",
        [
            "while True: pass",
            "sum(range(10**12))",
            "predict('t -> label: str', t='x')",
            "while True:\n    try:\n        predict('t -> label: str', t='x')\n    except SubcallError:\n        pass",
        ],
        ids=["loop", "native", "waiting", "stubborn"],
    )
    def test_a_cell_that_eats_the_time_is_stopped_early_enough_for_a_last_submit(self, code):
        script = cells("kept = 'in time'", code, CLOSED, otherwise=lambda request, n: Hang())
        with ScriptedModel(script) as model:
            ran = run_job(a_spec(model=model.url, budget=SHORT))
            told = next(r for r in reversed(model.requests) if schema_of(r) is None)["messages"][-1][
                "content"
            ]

        assert (ran.result.status, ran.result.limit) == ("partial", "wall_time"), ran.result.message
        assert (ran.output, ran.result.answered_by) == ({"answer": "in time"}, "submit")
        assert "closing turn" in told
        assert ran.result.usage.wall_time_ms < 8_000
        assert sums_are_exact(ran)
        assert replayed(ran).verified

    def test_a_model_that_hangs_is_asked_once_more_in_the_closing_turn(self):
        turns = cells("kept = 'in time'", CLOSED)

        def script(request, n):
            return Hang() if n == 1 else turns(request, n)

        with ScriptedModel(script) as model:
            ran = run_job(a_spec(model=model.url, budget=Budget(max_wall_time_ms=4_000, closing_reserve=0.5)))

        assert (ran.result.status, ran.result.limit) == ("partial", "wall_time")
        assert ran.output == {"answer": "in time"}
        assert sums_are_exact(ran)

    def test_without_a_reserve_there_is_no_closing_turn_by_time(self):
        budget = Budget(max_wall_time_ms=2_000, closing_reserve=0)
        with ScriptedModel(cells("kept = 1", "while True: pass", CLOSED)) as model:
            ran = run_job(a_spec(model=model.url, budget=budget))

        assert (ran.result.status, ran.result.limit) == ("failed", "wall_time")


SPEND = {
    "subcalls": (
        Budget(max_subcalls=3),
        "for i in range(9): predict('n: int -> label: Literal[\"x\"]', n=i)",
    ),
    "host_calls": (Budget(max_host_calls=3), "for i in range(9): budget()"),
    "output_bytes": (Budget(max_output_bytes=5_000), "print('x' * 9_000)"),
    "sandbox_cpu": (Budget(max_sandbox_cpu_ms=1_000), "sum(i * i for i in range(10**9))"),
    "output_tokens": (
        Budget(max_output_tokens=1_700, closing_reserve=0.5),
        "for i in range(999): predict('n: int -> label: str', n=i)",
    ),
}


@pytest.mark.parametrize("dimension", SPEND)
def test_a_model_that_met_a_limit_still_submits_what_it_has(dimension):
    budget, code = SPEND[dimension]
    settings = WorkerSettings(retry_seconds=0.01, turn_output_tokens=500)
    with ScriptedModel(cells("kept = 'mine'", code, CLOSED)) as model:
        ran = run_job(a_spec(model=model.url, budget=budget), settings=settings)

    assert (ran.result.status, ran.result.limit) == ("partial", dimension), ran.result.message
    assert (ran.output, ran.result.answered_by) == ({"answer": "mine"}, "submit")
    assert [event.dimension for event in ran.of("budget_exhausted")] == [dimension]
    assert sums_are_exact(ran)


class TestStop:
    def test_a_stop_asks_a_model_for_a_last_submit_and_says_so(self):
        with ScriptedModel(cells("kept = 'so far'", "while True: pass", CLOSED)) as model:
            gateway = MemoryGateway(a_spec(model=model.url))
            running = start(gateway)
            wait_for(lambda: kinds(gateway).count("cell_proposed") == 2)
            gateway.order("stop")
            running.join(20)
            told = model.requests[-1]["messages"][-1]["content"]

        ran = Ran(gateway)
        assert (ran.result.status, ran.result.failure_class) == ("stopped", "stopped")
        assert (ran.output, ran.result.answered_by) == ({"answer": "so far"}, "submit")
        assert "Stop was ordered" in told
        assert [event.order for event in ran.of("stop_observed")] == ["stop"]
        assert ran.of("stop_verified")[0].survivors == ()
        assert sums_are_exact(ran)
        assert replayed(ran).verified

    def test_a_kill_does_not_ask(self):
        with ScriptedModel(cells("kept = 'so far'", "while True: pass", CLOSED)) as model:
            gateway = MemoryGateway(a_spec(model=model.url))
            running = start(gateway)
            wait_for(lambda: kinds(gateway).count("cell_proposed") == 2)
            gateway.order("kill")
            running.join(20)
            asked = model.calls

        assert Ran(gateway).result.answered_by == "nobody"
        assert asked == 2

    def test_a_second_press_ends_the_grace_at_once(self):
        turns = cells("kept = 'so far'", "while True: pass")

        def script(request, n):
            return Hang() if n == 2 else turns(request, n)

        settings = WorkerSettings(stop_grace_seconds=600)
        with ScriptedModel(script) as model:
            gateway = MemoryGateway(a_spec(model=model.url))
            running = start(gateway, settings=settings)
            wait_for(lambda: kinds(gateway).count("cell_proposed") == 2)
            gateway.order("stop")
            wait_for(lambda: model.in_flight == 1)
            gateway.order("kill")
            running.join(20)

        ran = Ran(gateway)
        assert ran.result.status == "stopped"
        assert [event.order for event in ran.of("stop_observed")] == ["stop", "kill"]
        assert sums_are_exact(ran)

    def test_the_grace_is_short(self):
        turns = cells("DRAFT(answer='drafted')", "while True: pass")

        def script(request, n):
            return Hang() if n == 2 else turns(request, n)

        with ScriptedModel(script) as model:
            gateway = MemoryGateway(a_spec(model=model.url))
            running = start(gateway, settings=WorkerSettings(stop_grace_seconds=0.3))
            wait_for(lambda: kinds(gateway).count("cell_proposed") == 2)
            ordered = time.monotonic()
            gateway.order("stop")
            running.join(60)

        ran = Ran(gateway)
        assert (ran.output, ran.result.answered_by) == ({"answer": "drafted"}, "draft")
        assert time.monotonic() - ordered < 30


class TestExtraction:
    def never_submits(self, *, otherwise, code: str = "print('the answer is 42')", **spec) -> Ran:
        with ScriptedModel(cells(code, otherwise=otherwise)) as model:
            return run_job(a_spec(model=model.url, **{"budget": Budget(max_iterations=3), **spec}))

    @pytest.mark.requirement("N3-FAIL-8")
    def test_an_answer_nobody_submitted_is_read_out_of_the_history_and_labelled(self):
        asked = []

        def otherwise(request, n):
            asked.append(request["messages"][-1]["content"])
            return {"answer": "42"}

        ran = self.never_submits(otherwise=otherwise)

        assert (ran.result.status, ran.result.failure_class) == ("partial", "partial_success")
        assert (ran.output, ran.result.answered_by) == ({"answer": "42"}, "extracted")
        assert ran.result.limit == "iterations"
        assert "the answer is 42" in asked[0]
        assert "What is in the evidence?" in asked[0]
        assert len(asked) == 1
        assert ran.result.usage.subcalls == 0
        assert sums_are_exact(ran)
        assert replayed(ran).verified

    @pytest.mark.parametrize("reply", [{"wrong": 1}, "no json at all"])
    def test_what_does_not_fit_the_schema_is_no_answer(self, reply):
        ran = self.never_submits(otherwise=lambda request, n: reply)

        assert (ran.result.status, ran.result.answered_by) == ("failed", "nobody")
        assert ran.of("answer_extracted") == []
        assert sums_are_exact(ran)

    def test_an_invented_citation_is_no_answer(self, tmp_path):
        log = tmp_path / "app.log"
        log.write_text("one line\n")
        schema = {
            "type": "object",
            "properties": {"where": {"type": "string", "format": "citation"}},
            "required": ["where"],
        }
        given = {"output_schema": schema, "input_artifacts": (evidence_of(log),)}

        invented = self.never_submits(otherwise=lambda request, n: {"where": "app.log:99"}, **given)
        real = self.never_submits(otherwise=lambda request, n: {"where": "app.log:1"}, **given)

        assert invented.result.answered_by == "nobody"
        assert (real.result.answered_by, real.result.citations.verified) == ("extracted", 1)

    def test_a_draft_is_better_than_an_extraction(self):
        ran = self.never_submits(otherwise=lambda request, n: {"answer": "42"}, code="DRAFT(answer='mine')")

        assert (ran.output, ran.result.answered_by) == ({"answer": "mine"}, "draft")

    def test_from_cells_that_showed_nothing_nothing_is_extracted(self):
        ran = self.never_submits(otherwise=lambda request, n: {"answer": "42"}, code="x = 1")

        assert (ran.result.status, ran.result.answered_by) == ("failed", "nobody")

    def test_it_is_refused_when_nothing_is_left_to_pay_for_it(self):
        dear = {"prompt_tokens": 3_290, "completion_tokens": 9, "total_tokens": 3_299}

        def script(request, n):
            return Answer("```python\nprint('42')\n```", usage=dear)

        with ScriptedModel(script) as model:
            budget = Budget(max_iterations=3, max_input_tokens=3_300, closing_reserve=0)
            ran = run_job(a_spec(model=model.url, budget=budget))
            asked = model.calls

        assert (ran.result.answered_by, ran.result.limit, asked) == ("nobody", "input_tokens", 1)
        assert ran.result.usage.input_tokens == 3_290

    def test_it_is_paid_once_when_the_worker_dies_after_it(self):
        with ScriptedModel(cells("print('42')", otherwise=lambda request, n: {"answer": "42"})) as model:
            gateway = MemoryGateway(a_spec(model=model.url, budget=Budget(max_iterations=2)))
            attempt(gateway)
            paid = model.calls
            at = next(i for i, record in enumerate(gateway.records) if record.kind == "answer_extracted")
            again = MemoryGateway(gateway.spec)
            again.records = gateway.records[:at]
            attempt(again)
            assert model.calls == paid

        assert Ran(again).result.answered_by == "extracted"
