"""Work that is cut off in the middle: nothing is lost, nothing is counted twice, the record can be replayed."""

import asyncio
import time
from decimal import Decimal

import pytest

from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import Budget
from rlm_worker.contracts.gateway import GatewayDown
from rlm_worker.models.settings import ModelSettings, PricePerMillion
from rlm_worker.replay import verify_replay
from tests.builders import a_spec
from tests.engine import QUICK, Ran, attempt, run_job, start
from tests.integration.worker.test_stop_and_resume import kinds, wait_for
from tests.memory_gateway import MemoryGateway
from tests.scripted_model import Fault, Hang, ScriptedModel, cells

BATCH = """# %%
DRAFT(answer="so far")
# %%
predict_batch("n: int -> label: Literal['x']", [{"n": i} for i in range(600)])
"""
ROOM = Budget(max_subcalls=2_000)


def recorded_usage(ran: Ran) -> tuple[int, int]:
    calls = [event.spend for event in ran.of("subcall_finished") + ran.of("model_answered")]
    lost = [event.charged for event in ran.of("subcall_lost")]
    held = {event.ordinal for event in ran.of("subcall_started")}
    answered = [event for event in ran.of("subcall_finished") if event.ordinal in held]
    return len(answered) + len(lost), sum(call.input_tokens for call in [*calls, *lost])


def replayed(ran: Ran):
    return asyncio.run(verify_replay(ran.gateway.spec, ran.gateway.records, settings=QUICK))


@pytest.mark.parametrize("answered", [0, 100])
def test_a_stop_in_the_middle_of_a_large_batch_keeps_the_draft_and_the_sums(answered):
    def script(request, n):
        return {"label": "x"} if n < answered else Hang()

    with ScriptedModel(script) as model:
        gateway = MemoryGateway(a_spec(playbook=BATCH, model=model.url, budget=ROOM))
        running = start(gateway)
        wait_for(lambda: model.in_flight == 64)
        gateway.order("stop")
        running.join(20)

    ran = Ran(gateway)
    assert (ran.result.status, ran.output) == ("stopped", {"answer": "so far"})
    assert (ran.result.usage.subcalls, ran.result.usage.input_tokens) == recorded_usage(ran)


def test_a_time_limit_in_the_middle_of_a_large_batch_keeps_the_draft_and_the_sums():
    with ScriptedModel(lambda request, n: Hang()) as model:
        budget = Budget(max_subcalls=2_000, max_wall_time_ms=1_500)
        ran = run_job(a_spec(playbook=BATCH, model=model.url, budget=budget))

    assert (ran.result.status, ran.result.limit) == ("partial", "wall_time")
    assert (ran.result.usage.subcalls, ran.result.usage.input_tokens) == recorded_usage(ran)
    assert replayed(ran).verified


def test_a_limit_in_fractions_of_a_cent_is_kept_exactly():
    price = PricePerMillion(input_usd=Decimal("0.011"), output_usd=Decimal("0.011"))
    settings = WorkerSettings(models=ModelSettings(price=price))
    with ScriptedModel() as model:
        budget = Budget(max_subcalls=2_000, max_cost_usd=Decimal("0.0004"))
        ran = run_job(a_spec(playbook=BATCH, model=model.url, budget=budget), settings=settings)

    spent = sum(event.spend.cost_usd for event in ran.of("subcall_finished"))
    assert ran.result.usage.cost_usd == spent <= Decimal("0.0004")


def test_a_job_that_was_cut_off_replays_as_far_as_it_came():
    ran = run_job(
        a_spec(
            playbook="# %%\nx = 1\n# %%\nDRAFT(answer='d')\nwhile True: pass\n",
            budget=Budget(max_wall_time_ms=1_500),
        )
    )

    report = replayed(ran)

    assert ran.result.status == "partial"
    assert report.verified
    assert report.cells == 1


def test_equal_calls_that_fail_together_replay_as_they_were():
    code = """
import asyncio
async def one():
    try:
        return (await predict("t -> label: Literal['x']", t="same")).label
    except SubcallError as error:
        return "failed"
print(await asyncio.gather(one(), one(), one()))
SUBMIT(answer="done")
"""
    script = cells(code, otherwise=lambda request, n: Fault(400, {"error": {"message": "no"}}))
    with ScriptedModel(script, latency_seconds=0.05) as model:
        ran = run_job(a_spec(model=model.url))
        asked = model.calls - 1

    assert asked == 1
    assert replayed(ran).verified


def test_equal_rows_of_batches_at_once_are_asked_once():
    code = """
from concurrent.futures import ThreadPoolExecutor
def many(_):
    return [r.label for r in predict_batch("n: int -> label: Literal['x','y']", [{"n": i} for i in range(20)])]
with ThreadPoolExecutor(2) as pool:
    first, second = pool.map(many, range(2))
SUBMIT(answer=str(first == second))
"""
    with ScriptedModel(cells(code), latency_seconds=0.05) as model:
        ran = run_job(a_spec(model=model.url))
        asked = model.calls - 1

    assert ran.output == {"answer": "True"}
    assert asked == 20


def test_a_submit_that_was_recorded_wins_over_the_time_limit():
    book = "# %%\ntry:\n    SUBMIT(answer='in')\nexcept BaseException:\n    while True: pass\n"
    ran = run_job(a_spec(playbook=book, budget=Budget(max_wall_time_ms=1_500)))

    assert (ran.result.status, ran.output) == ("succeeded", {"answer": "in"})


def test_a_schema_that_would_take_for_ever_to_check_is_refused_at_once():
    book = """# %%
defs = {"d0": {"type": "string"}}
for i in range(1, 43):
    defs[f"d{i}"] = {"allOf": [{"$ref": f"#/$defs/d{i-1}"}, {"$ref": f"#/$defs/d{i-1}"}]}
schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/d42"}}, "$defs": defs}
try:
    predict(schema, t="a")
except Exception as error:
    SUBMIT(answer=str(error))
"""
    began = time.monotonic()
    ran = run_job(a_spec(playbook=book))

    assert "too large" in ran.output["answer"]
    assert time.monotonic() - began < 20


def test_a_control_plane_that_is_out_of_reach_for_a_moment_costs_nothing():
    gateway = MemoryGateway(a_spec(playbook="# %%\nx = 1\n# %%\nSUBMIT(answer='x')\n"))
    record, settle, down = gateway.record, gateway.settle, iter([True, False, True, True, False])

    def flaky(call):
        def ask(request):
            if next(down, False):
                raise GatewayDown("busy")
            return call(request)

        return ask

    gateway.record, gateway.settle = flaky(record), flaky(settle)
    attempt(gateway)

    assert Ran(gateway).output == {"answer": "x"}


def test_a_child_that_is_resumed_keeps_the_budget_it_was_given():
    def script(request, n):
        text = request["messages"][1]["content"]
        turns = sum(message["role"] == "assistant" for message in request["messages"])
        if "count" in text:
            return f"```python\nimport time; time.sleep(0.3)\nx = {turns}\n```"
        return "```python\nrlm_query('count', signature='-> n: int', budget={'iterations': 4})\n```"

    with ScriptedModel(script) as model:
        gateway = MemoryGateway(a_spec(model=model.url, budget=Budget(max_iterations=6, max_depth=1)))
        running = start(gateway)
        wait_for(lambda: sum(record.event.get("node") == "child.2" for record in gateway.records) > 8)
        gateway.expire()
        running.join(10)
        attempt(gateway)

    ran = Ran(gateway)
    child = [event for event in ran.of("cell_finished") if event.node]
    assert len(child) == 4
    assert len({event.node for event in child}) == 1
    assert kinds(gateway).count("child_started") >= 1


def test_a_crash_in_the_closing_turn_gives_no_further_turn():
    over = "[predict('n: int -> label: Literal[\"x\"]', n=i) for i in range(99)]"
    last = "import time; time.sleep(1)\nSUBMIT(answer='closed')"
    with ScriptedModel(cells(over, last, "x = 1", "x = 2")) as model:
        gateway = MemoryGateway(a_spec(model=model.url, budget=Budget(max_subcalls=3)))
        running = start(gateway)
        wait_for(lambda: kinds(gateway).count("cell_proposed") == 2)
        gateway.expire()
        running.join(10)
        attempt(gateway)
        turns = sum("json_schema" not in str(request) for request in model.requests)

    ran = Ran(gateway)
    assert (ran.result.status, ran.result.limit, ran.output) == ("partial", "subcalls", {"answer": "closed"})
    assert turns == 2
    assert kinds(gateway).count("budget_exhausted") == 1
