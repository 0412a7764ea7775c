"""What a job does about each kind of error of its models, with exact sums."""

import asyncio

import pytest

from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import Budget
from rlm_worker.replay import verify_replay
from tests.builders import a_spec
from tests.engine import QUICK, Ran, attempt, run_job
from tests.memory_gateway import MemoryGateway
from tests.scripted_model import Answer, Cut, Fault, Raw, ScriptedModel, cells, schema_of

ANSWER = "```python\nSUBMIT(answer='done')\n```"
LIMITED = Fault(429, {"error": {"message": "slow down"}}, {"Retry-After": "3600"})
TOO_LONG = Fault(
    400, {"error": {"message": "maximum context length is 10", "code": "context_length_exceeded"}}
)
ASK = "# %%\nSUBMIT(answer=predict('t -> label: Literal[\"x\"]', t='a').label)\n"


def sums_are_exact(ran: Ran) -> bool:
    """What the result says was spent is the sum over every call in the trace."""
    spent = [event.spend for event in ran.of("model_answered") + ran.of("subcall_finished")]
    spent += [event.charged for event in ran.of("subcall_lost")]
    usage = ran.result.usage
    return (usage.input_tokens, usage.output_tokens) == (
        sum(spend.input_tokens for spend in spent),
        sum(spend.output_tokens for spend in spent),
    )


def replayed(ran: Ran):
    return asyncio.run(verify_replay(ran.gateway.spec, ran.gateway.records, settings=QUICK))


def first_then(fault, *, reply=ANSWER):
    return lambda request, n: fault if n == 0 else reply


@pytest.mark.requirement("LESSON-14")
@pytest.mark.parametrize(
    ("fault", "is_charged"),
    [
        (Fault(503, "busy"), False),
        (Fault(500, "oops"), True),
        (Cut(40), True),
        (Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), True),
    ],
)
def test_a_turn_that_failed_for_a_moment_is_asked_again_and_what_may_be_billed_is_charged(fault, is_charged):
    with ScriptedModel(first_then(fault)) as model:
        ran = run_job(a_spec(model=model.url))
        asked = model.calls

    assert (ran.result.status, ran.output) == ("succeeded", {"answer": "done"})
    assert asked == 2
    failed = [event for event in ran.of("model_answered") if not event.ok]
    assert [event.spend.output_tokens > 0 for event in failed] == ([True] if is_charged else [])
    assert sums_are_exact(ran)


@pytest.mark.parametrize("fault", [Fault(500, "oops"), Cut(40)])
def test_a_subcall_that_may_have_been_billed_is_charged_and_asked_again_under_a_new_hold(fault):
    with ScriptedModel(first_then(fault, reply={"label": "x"})) as model:
        ran = run_job(a_spec(playbook=ASK, model=model.url))

    first, second = ran.of("subcall_started")
    assert ran.output == {"answer": "x"}
    assert ran.of("subcall_lost")[0].charged == first.hold
    assert second.hold.subcalls == 0
    assert ran.result.usage.subcalls == 1
    assert sums_are_exact(ran)


def test_a_prompt_that_cannot_start_anew_is_shortened_and_asked_once_more():
    def script(request, n):
        longest = sum(len(message["content"]) for message in request["messages"])
        if longest > 12_000:
            return TOO_LONG
        turns = sum(message["role"] == "assistant" for message in request["messages"])
        return ANSWER if turns == 1 else f"```python\nprint('{turns}' * 9000)\n```"

    with ScriptedModel(script) as model:
        ran = run_job(a_spec(model=model.url))
        last = model.requests[-1]["messages"]

    assert ran.output == {"answer": "done"}
    assert ran.of("rolled_over") == []
    assert len(ran.of("prompt_shortened")) == 1
    assert "What is in the evidence?" in last[1]["content"]
    assert any("left out" in message["content"] for message in last)
    assert sums_are_exact(ran)


def test_a_prompt_that_does_not_fit_even_when_shortened_fails_the_job():
    with ScriptedModel(lambda request, n: TOO_LONG) as model:
        ran = run_job(a_spec(model=model.url))
        asked = model.calls

    assert (ran.result.status, ran.result.failure_class) == ("failed", "model_error")
    assert "context" in ran.result.message
    assert asked == 2


def test_a_refusal_is_an_observation_and_two_in_a_row_end_the_job():
    declined = Answer("", refusal="I cannot help with that")
    with ScriptedModel(first_then(declined)) as model:
        once = run_job(a_spec(model=model.url))
        told = model.requests[-1]["messages"][-1]["content"]
    with ScriptedModel(lambda request, n: declined) as model:
        always = run_job(a_spec(model=model.url))
        asked = model.calls

    assert once.output == {"answer": "done"}
    assert "declined" in told
    assert "declined" in once.of("cell_rejected")[0].reason
    assert (always.result.failure_class, asked) == ("model_error", 2)
    assert sums_are_exact(once)


def test_a_wrong_key_fails_at_once_and_says_what_to_do():
    with ScriptedModel(lambda request, n: Fault(401, {"error": {"message": "bad key"}})) as model:
        ran = run_job(a_spec(model=model.url))
        asked = model.calls

    assert (ran.result.failure_class, asked) == ("model_error", 1)
    assert "set the right one" in ran.result.message


def test_a_wrong_key_is_not_tried_for_every_row_of_a_batch():
    book = """# %%
results = predict_batch("n: int -> label: Literal['x']", [{"n": i} for i in range(300)])
SUBMIT(answer=str(sum(r.ok for r in results)))
"""
    with ScriptedModel(lambda request, n: Fault(401, {"error": {"message": "bad key"}})) as model:
        ran = run_job(
            a_spec(playbook=book, model=model.url, budget=Budget(max_subcalls=500)),
            settings=WorkerSettings(subcalls_in_flight=8),
        )
        asked = model.calls

    assert ran.output == {"answer": "0"}
    assert asked <= 8


class TestParking:
    def test_a_long_rate_limit_of_the_root_model_parks_the_job_and_the_next_attempt_goes_on(self):
        limited = {"is": True}
        turns = cells("kept = 41", "SUBMIT(answer=str(kept + 1))")

        def script(request, n):
            has_said = any(message["role"] == "assistant" for message in request["messages"])
            return LIMITED if limited["is"] and has_said else turns(request, n)

        with ScriptedModel(script) as model:
            gateway = MemoryGateway(a_spec(model=model.url))
            attempt(gateway)
            assert gateway.result is None
            assert gateway.parked is not None
            assert gateway.records[-1].kind == "parked"
            limited["is"] = False
            gateway.unpark()
            attempt(gateway)
            asked = model.calls

        ran = Ran(gateway)
        assert ran.output == {"answer": "42"}
        assert gateway.parks[0].reason == "rate_limited"
        assert asked == 3, "the turn that was answered is not paid again"
        assert replayed(ran).verified
        assert sums_are_exact(ran)

    def test_a_long_rate_limit_in_a_batch_parks_and_the_answered_rows_are_not_paid_again(self):
        limited = {"is": True}
        book = """# %%
results = predict_batch("n: int -> label: Literal['x']", [{"n": i} for i in range(100)])
SUBMIT(answer=str(sum(r.ok for r in results)))
"""

        def script(request, n):
            return LIMITED if limited["is"] and n >= 30 else {"label": "x"}

        with ScriptedModel(script) as model:
            gateway = MemoryGateway(a_spec(playbook=book, model=model.url))
            attempt(gateway)
            assert gateway.parked is not None
            paid = [r for r in gateway.records if r.kind == "subcall_finished" and r.event["ok"]]
            limited["is"] = False
            gateway.unpark()
            before = model.calls
            attempt(gateway)
            asked = model.calls - before

        ran = Ran(gateway)
        assert ran.output == {"answer": "100"}
        assert len(paid) == 30
        assert asked == 70
        assert ran.result.usage.subcalls == 100
        assert replayed(ran).verified
        assert sums_are_exact(ran)

    def test_a_long_rate_limit_in_a_child_parks_the_whole_tree(self):
        limited = {"is": True}

        def script(request, n):
            text = request["messages"][1]["content"]
            if schema_of(request) is not None:
                return {"label": "x"}
            if "count" in text:
                return LIMITED if limited["is"] else "```python\nSUBMIT(n=7)\n```"
            return "```python\nr = rlm_query('count', signature='-> n: int')\nSUBMIT(answer=str(r.n))\n```"

        with ScriptedModel(script) as model:
            gateway = MemoryGateway(a_spec(model=model.url))
            attempt(gateway)
            assert gateway.parked is not None
            limited["is"] = False
            gateway.unpark()
            attempt(gateway)

        ran = Ran(gateway)
        assert ran.output == {"answer": "7"}
        assert len(ran.of("child_started")) == 1
        assert sums_are_exact(ran)

    def test_a_job_that_gets_no_answer_at_all_is_parked_a_bounded_number_of_times(self):
        settings = WorkerSettings(retry_seconds=0.01, parks_in_a_row=2)
        with ScriptedModel(lambda request, n: LIMITED) as model:
            gateway = MemoryGateway(a_spec(model=model.url))
            for _ in range(3):
                attempt(gateway, settings=settings)
                gateway.unpark()

        ran = Ran(gateway)
        assert len(gateway.parks) == 2
        assert ran.result.failure_class == "model_error"
        assert "too many requests" in ran.result.message

    def test_a_short_rate_limit_is_waited_out_by_the_worker(self):
        short = Fault(429, {"error": {"message": "slow down"}}, {"Retry-After": "0.05"})
        with ScriptedModel(first_then(short)) as model:
            ran = run_job(a_spec(model=model.url), settings=QUICK)

        assert ran.output == {"answer": "done"}
        assert ran.gateway.parks == []

    def test_a_stop_that_came_first_wins_over_parking(self):
        gateway: MemoryGateway

        def script(request, n):
            gateway.order("kill")
            return LIMITED

        with ScriptedModel(script) as model:
            gateway = MemoryGateway(a_spec(model=model.url))
            attempt(gateway)

        assert Ran(gateway).result.status == "stopped"
        assert gateway.parks == []
