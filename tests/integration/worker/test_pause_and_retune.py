"""A pause lets go of everything and resume spends nothing again; limits change while a job runs, and a job may ask at one."""

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from rlm_worker.contracts import Budget
from rlm_worker.contracts.gateway import HoldRefused, RecordAnswer, RecordRequest
from rlm_worker.replay import verify_replay
from tests.builders import a_spec
from tests.engine import QUICK, Ran, attempt, start
from tests.memory_gateway import MemoryGateway
from tests.scripted_model import Reply, ScriptedModel, cells, echo_schema

ASK = "predict('t -> label: str', t='{}').label"


def wait_for(holds, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def kinds(gateway: MemoryGateway) -> list[str]:
    return [record.kind for record in gateway.records]


class Slow:
    """A model whose answers wait until they are let go."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def __call__(self, request: dict[str, object], n: int) -> Reply:
        self.asked.release()
        assert self.go.acquire(timeout=20)
        return echo_schema(request, n)


@pytest.mark.requirement("S1-CAP-7")
def test_a_pause_lets_a_call_under_way_end_and_resume_pays_nothing_again():
    slow = Slow()
    with ScriptedModel(slow) as model:
        source = f"# %%\nfirst = {ASK.format(1)}\n# %%\nsecond = {ASK.format(2)}\n# %%\nSUBMIT(answer=first + second)\n"
        gateway = MemoryGateway(a_spec(playbook=source, model=model.url))
        slow.go.release()
        running = start(gateway)
        assert slow.asked.acquire(timeout=20)
        assert slow.asked.acquire(timeout=20)
        gateway.order("pause")
        wait_for(lambda: gateway.told == "pause")
        slow.go.release()
        running.join(20)

        paid = model.calls
        assert gateway.held
        assert gateway.result is None
        assert kinds(gateway)[-2:] == ["stop_observed", "stop_verified"]
        gateway.resume()
        slow.go.release(9)
        attempt(gateway)

    ran = Ran(gateway)
    assert ran.result.status == "succeeded"
    assert model.calls == paid == 2
    assert ran.result.usage.subcalls == 2
    assert "diverged" not in kinds(gateway)
    assert ran.of("stop_observed")[0].order == "pause"


def test_a_cell_that_ends_in_time_is_kept_and_the_pause_is_at_the_next_iteration():
    source = "# %%\nimport time; time.sleep(0.5); print('done')\n# %%\nSUBMIT(answer='x')\n"
    gateway = MemoryGateway(a_spec(playbook=source))
    running = start(gateway)
    wait_for(lambda: "cell_proposed" in kinds(gateway))

    gateway.order("pause")
    running.join(20)

    assert gateway.held
    assert kinds(gateway).count("cell_finished") == 1
    assert kinds(gateway).count("cell_proposed") == 1
    gateway.resume()
    attempt(gateway)
    assert Ran(gateway).output == {"answer": "x"}


def test_a_cell_that_takes_longer_than_the_grace_is_cut_off_and_runs_again():
    source = "# %%\nimport time\nDRAFT(answer='so far')\ntime.sleep(1.0)\nSUBMIT(answer='x')\n"
    gateway = MemoryGateway(a_spec(playbook=source))
    running = start(gateway, settings=replace(QUICK, pause_grace_seconds=0.1))
    wait_for(lambda: "draft_recorded" in kinds(gateway))

    gateway.order("pause")
    running.join(20)

    assert gateway.held
    assert "cell_finished" not in kinds(gateway)
    gateway.resume()
    attempt(gateway)
    assert Ran(gateway).output == {"answer": "x"}


def test_a_kill_during_a_pause_is_a_kill():
    gateway = MemoryGateway(a_spec(playbook="# %%\nimport time; time.sleep(100)\n"))
    running = start(gateway)
    wait_for(lambda: "cell_proposed" in kinds(gateway))

    gateway.order("pause")
    gateway.order("kill")
    running.join(20)

    ran = Ran(gateway)
    assert ran.result.status == "stopped"
    assert ran.of("stop_verified")[0].survivors == ()


def test_a_job_that_ends_while_it_is_paused_is_over():
    source = "# %%\nimport time; time.sleep(0.4); SUBMIT(answer='x')\n"
    gateway = MemoryGateway(a_spec(playbook=source))
    running = start(gateway)
    wait_for(lambda: "cell_proposed" in kinds(gateway))

    gateway.order("pause")
    running.join(20)

    assert Ran(gateway).output == {"answer": "x"}


@pytest.mark.requirement("CARD-19")
def test_a_job_goes_on_past_a_limit_that_was_raised_in_time_and_the_change_stands_in_its_trace():
    slow = Slow()
    with ScriptedModel(slow) as model:
        asks = "\n".join(ASK.format(n) for n in range(3))
        spec = a_spec(
            playbook=f"# %%\n{asks}\nSUBMIT(answer='x')\n", model=model.url, budget=Budget(max_subcalls=1)
        )
        gateway = MemoryGateway(spec)
        running = start(gateway)
        assert slow.asked.acquire(timeout=20)
        gateway.retune(Budget(max_subcalls=3), reason="the answer is near")
        wait_for(lambda: "retuned" in kinds(gateway))
        slow.go.release(9)
        running.join(20)

    ran = Ran(gateway)
    assert ran.result.status == "succeeded", ran.result.message
    told = ran.of("retuned")
    assert [(each.version, each.budget.max_subcalls, each.by, each.reason) for each in told] == [
        (1, 3, "ada", "the answer is near")
    ]
    report = asyncio.run(verify_replay(spec, gateway.records))
    assert report.verified, report


def test_a_limit_of_time_is_moved_while_a_cell_runs():
    source = "# %%\nimport time; time.sleep(2.5)\nSUBMIT(answer='x')\n"
    gateway = MemoryGateway(a_spec(playbook=source, budget=Budget(max_wall_time_ms=1_500)))
    running = start(gateway)
    wait_for(lambda: "cell_proposed" in kinds(gateway))

    gateway.retune(Budget(max_wall_time_ms=60_000))
    running.join(20)

    assert Ran(gateway).result.status == "succeeded"


def test_a_limit_of_time_that_is_lowered_ends_the_job_then():
    gateway = MemoryGateway(a_spec(playbook="# %%\nimport time; time.sleep(100)\n"))
    running = start(gateway)
    wait_for(lambda: "cell_proposed" in kinds(gateway))

    gateway.retune(Budget(max_wall_time_ms=1_000))
    running.join(20)

    assert Ran(gateway).result.limit == "wall_time"


def test_a_later_attempt_works_under_the_limits_of_the_last_change():
    source = f"# %%\n{ASK.format(1)}\n# %%\n{ASK.format(2)}\nSUBMIT(answer='x')\n"
    with ScriptedModel(echo_schema) as model:
        gateway = MemoryGateway(a_spec(playbook=source, model=model.url, budget=Budget(max_subcalls=1)))
        gateway.retune(Budget(max_subcalls=2))
        attempt(gateway)

    ran = Ran(gateway)
    assert ran.result.status == "succeeded", ran.result.message
    assert len(ran.of("retuned")) == 1


@pytest.mark.requirement("CARD-19")
@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("subcalls", {"budget": Budget(max_subcalls=1)}),
        ("iterations", {"budget": Budget(max_iterations=1)}),
        ("host_calls", {"budget": Budget(max_host_calls=0)}),
    ],
)
def test_a_job_that_asks_at_its_limit_is_parked_and_goes_on_when_it_is_raised(name, spec):
    source = (
        f"# %%\nDRAFT(answer='d')\na = {ASK.format(1)}\n# %%\nb = {ASK.format(2)}\nSUBMIT(answer=a + b)\n"
    )
    with ScriptedModel(echo_schema) as model:
        gateway = MemoryGateway(a_spec(playbook=source, model=model.url, on_limit="ask", **spec))
        attempt(gateway)

        assert gateway.parked is not None, name
        assert (gateway.parked.reason, name in gateway.parked.detail) == ("budget", True)
        before = model.calls
        gateway.retune(Budget())
        gateway.unpark()
        attempt(gateway)

    ran = Ran(gateway)
    assert ran.result.status == "succeeded", ran.result.message
    assert model.calls == 2
    assert before <= 1
    assert ran.of("budget_exhausted") == []
    assert "diverged" not in kinds(gateway)


def test_a_model_that_asks_at_its_limit_is_given_no_closing_turn_before_the_answer_is_there():
    with ScriptedModel(cells("x = 1", "y = 2", "SUBMIT(answer='done')")) as model:
        gateway = MemoryGateway(a_spec(model=model.url, budget=Budget(max_iterations=2), on_limit="ask"))
        attempt(gateway)
        assert gateway.parked is not None
        gateway.retune(Budget(max_iterations=9))
        gateway.unpark()
        attempt(gateway)

    ran = Ran(gateway)
    assert (ran.result.status, ran.output) == ("succeeded", {"answer": "done"})
    assert model.calls == 3


def test_a_job_that_asks_at_its_limit_of_time_is_parked_in_the_middle_of_its_cell():
    source = "# %%\nimport time; time.sleep(1.5)\nSUBMIT(answer='x')\n"
    gateway = MemoryGateway(a_spec(playbook=source, budget=Budget(max_wall_time_ms=700), on_limit="ask"))
    attempt(gateway)

    assert gateway.parked is not None
    gateway.retune(Budget())
    gateway.unpark()
    attempt(gateway)
    assert Ran(gateway).result.status == "succeeded"


class Refusing(MemoryGateway):
    """A kill switch on the model comes into force before its order has arrived."""

    is_refusing = False

    def record(self, request: RecordRequest) -> RecordAnswer:
        holds = any(each.kind in ("subcall_started", "model_asked") for each in request.records)
        if self.is_refusing and holds:
            raise HoldRefused("a kill switch on model m is engaged")
        return super().record(request)


def test_a_call_that_a_kill_switch_refuses_ends_the_job_with_all_that_was_recorded():
    source = f"# %%\nDRAFT(answer='so far')\n# %%\n{ASK.format(1)}\n"
    with ScriptedModel(echo_schema) as model:
        gateway = Refusing(a_spec(playbook=source, model=model.url))
        gateway.is_refusing = True
        running = start(gateway)
        wait_for(lambda: kinds(gateway).count("cell_proposed") == 2)
        gateway.order("kill")
        running.join(20)

    ran = Ran(gateway)
    assert (ran.result.status, ran.output) == ("stopped", {"answer": "so far"})
    assert model.calls == 0
    assert ran.result.usage.subcalls == 0
    assert ran.of("stop_verified")[0].survivors == ()


def test_a_model_that_is_asked_nothing_more_keeps_its_last_turn():
    """A pause between a turn and its cell: the turn was paid for, and is not asked for again."""
    asked, go = threading.Semaphore(0), threading.Semaphore(0)
    script = cells("x = 1", "SUBMIT(answer='done')")

    def slow(request, n):
        asked.release()
        assert go.acquire(timeout=20)
        return script(request, n)

    with ScriptedModel(slow) as model:
        gateway = MemoryGateway(a_spec(model=model.url))
        running = start(gateway)
        assert asked.acquire(timeout=20)
        gateway.order("pause")
        go.release()
        running.join(20)
        assert gateway.held
        gateway.resume()
        go.release(5)
        attempt(gateway)

    assert Ran(gateway).output == {"answer": "done"}
    assert model.calls == 2
