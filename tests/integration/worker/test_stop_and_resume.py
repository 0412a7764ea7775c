"""Stops that are verified, leases that are lost, and attempts that go on where another ended."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from rlm_worker.replay import verify_replay
from tests.builders import a_spec, evidence_of
from tests.engine import QUICK, Ran, attempt, run_job, start
from tests.memory_gateway import MemoryGateway
from tests.scripted_model import Hang, ScriptedModel, cells


def wait_for(holds, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def kinds(gateway: MemoryGateway) -> list[str]:
    return [record.kind for record in gateway.records]


def children_of_this_process() -> set[int]:
    """Every process below this one that is not already dead, zygote included."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if fields[0] != "Z":
            found.add((int(status.parent.name), int(fields[1])))
    tree, grew = {os.getpid()}, True
    while grew:
        more = {pid for pid, parent in found if parent in tree} - tree
        tree |= more
        grew = bool(more)
    return tree - {os.getpid()}


@pytest.mark.requirement("CARD-22", "S1-QUEUE-5", "LESSON-23", "LESSON-26", "S3-BOUND-6")
@pytest.mark.parametrize("code", ["while True: pass", "sum(range(10**11))", "import time; time.sleep(1000)"])
def test_a_stop_ends_a_running_cell_and_is_verified(code):
    run_job(a_spec(playbook="# %%\nSUBMIT(answer='warm')\n"))
    before = children_of_this_process()
    gateway = MemoryGateway(a_spec(playbook=f"# %%\nDRAFT(answer='so far')\n# %%\n{code}\n"))
    running = start(gateway)
    wait_for(lambda: kinds(gateway).count("cell_proposed") == 2)

    gateway.order("stop")
    running.join(10)

    ran = Ran(gateway)
    assert (ran.result.status, ran.result.failure_class) == ("stopped", "stopped")
    assert ran.output == {"answer": "so far"}
    assert ran.of("stop_verified")[0].survivors == ()
    # The launcher of a sandbox, which is ours and not the cell's, leaves some milliseconds after its last word.
    wait_for(lambda: children_of_this_process() <= before, seconds=2)


def test_a_stop_reaches_a_subcall_that_hangs_and_charges_its_hold():
    with ScriptedModel(lambda request, n: Hang()) as model:
        gateway = MemoryGateway(a_spec(playbook="# %%\npredict('t -> label: str', t='x')\n", model=model.url))
        running = start(gateway)
        wait_for(lambda: model.in_flight == 1)
        gateway.order("kill")
        running.join(10)
        assert model.wait_until(lambda server: server.in_flight == 0)

    ran = Ran(gateway)
    assert ran.result.status == "stopped"
    held = ran.of("subcall_started")[0].hold
    assert ran.of("subcall_lost")[0].charged == held
    assert ran.result.usage.input_tokens == held.input_tokens


def test_a_stop_reaches_a_turn_that_hangs_and_charges_its_hold():
    with ScriptedModel(lambda request, n: Hang()) as model:
        gateway = MemoryGateway(a_spec(model=model.url))
        running = start(gateway)
        wait_for(lambda: model.in_flight == 1)
        gateway.order("stop")
        running.join(10)

    ran = Ran(gateway)
    held = ran.of("model_asked")[0].hold
    assert ran.result.status == "stopped"
    assert ran.result.usage.input_tokens == held.input_tokens
    assert ran.of("model_answered")[0].spend.output_tokens == held.output_tokens


@pytest.mark.requirement("LESSON-3", "LESSON-4", "LESSON-6", "N3-RESULT-10")
def test_a_worker_that_lost_its_lease_kills_its_sandbox_and_writes_nothing():
    gateway = MemoryGateway(a_spec(playbook="# %%\nwhile True: pass\n"))
    running = start(gateway)
    wait_for(lambda: "cell_proposed" in kinds(gateway))
    before = len(gateway.records)

    gateway.expire()
    running.join(10)

    assert not running.is_alive()
    assert gateway.result is None
    assert len(gateway.records) == before


@pytest.mark.requirement("S1-QUEUE-2", "LESSON-15", "LESSON-16", "N3-PLAN-5", "S2-FAQ-1", "S3X-RLM-3")
def test_the_next_attempt_goes_on_where_the_last_one_ended_and_pays_nothing_twice():
    book = """# %% ask
first = [r.label for r in predict_batch("n: int -> label: Literal['x','y']", [{"n": i} for i in range(10)])]
# %% ask more
import time
second = predict("n: int -> label: Literal['x','y']", n=100).label
time.sleep(30 if budget()["iterations"] == 18 else 0)
# %% answer
SUBMIT(answer=second + str(len(first)))
"""
    with ScriptedModel() as model:
        gateway = MemoryGateway(
            a_spec(playbook=book.replace("time.sleep(30", "time.sleep(1"), model=model.url)
        )
        running = start(gateway)
        wait_for(lambda: kinds(gateway).count("subcall_finished") == 11)
        gateway.expire()
        running.join(10)
        attempt(gateway)
        asked = model.calls

    ran = Ran(gateway)
    assert ran.result.status == "succeeded", ran.result.message
    assert asked == 11
    assert ran.result.usage.subcalls == 11
    assert ran.result.attempt == 2
    assert [event.attempt for event in ran.of("attempt_started")] == [1, 2]


def test_a_call_whose_outcome_died_with_its_worker_is_charged_and_asked_again():
    slow = {"hang": True}

    def script(request, n):
        return Hang() if slow["hang"] else {"label": "x"}

    book = "# %%\nSUBMIT(answer=predict('t -> label: Literal[\"x\"]', t='a').label)\n"
    with ScriptedModel(script) as model:
        gateway = MemoryGateway(a_spec(playbook=book, model=model.url))
        running = start(gateway)
        wait_for(lambda: model.in_flight == 1)
        gateway.expire()
        running.join(10)
        slow["hang"] = False
        attempt(gateway)

    ran = Ran(gateway)
    assert ran.output == {"answer": "x"}
    held = ran.of("subcall_started")[0].hold
    assert ran.of("subcall_lost")[0].charged == held
    assert ran.result.usage.subcalls == 2
    assert (
        ran.result.usage.input_tokens == held.input_tokens + ran.of("subcall_finished")[0].spend.input_tokens
    )


def test_a_root_turn_that_was_answered_is_not_paid_again():
    with ScriptedModel(cells("import time; time.sleep(1)\nx = 'kept'", "SUBMIT(answer=x)")) as model:
        gateway = MemoryGateway(a_spec(model=model.url))
        running = start(gateway)
        wait_for(lambda: "cell_proposed" in kinds(gateway))
        gateway.expire()
        running.join(10)
        attempt(gateway)
        asked = model.calls

    ran = Ran(gateway)
    assert ran.output == {"answer": "kept"}
    assert asked == 2
    assert ran.result.usage.iterations == 2


def test_a_job_whose_submit_was_recorded_settles_without_running_anything():
    spec = a_spec(playbook="# %%\nSUBMIT(answer='once')\n")
    gateway = MemoryGateway(spec)
    attempt(gateway)
    at = next(i for i, record in enumerate(gateway.records) if record.kind == "submit_accepted")
    again = MemoryGateway(spec)
    again.records = gateway.records[: at + 1]

    attempt(again)

    assert Ran(again).output == {"answer": "once"}
    assert kinds(again)[at + 1 :] == ["attempt_started", "attempt_ended"]


def _verify(ran: Ran):
    return asyncio.run(verify_replay(ran.gateway.spec, ran.gateway.records, settings=QUICK))


@pytest.mark.requirement("CARD-21")
def test_a_finished_job_replays_to_the_same_result_with_no_model_reachable(tmp_path):
    log = tmp_path / "app.log"
    log.write_text("".join(f"line {i} {'ERROR' if i % 7 == 0 else 'ok'}\n" for i in range(1000)))
    code = """
import random
hits = list(evidence.search("ERROR"))
sample = random.sample(hits, 5)
labels = [r.label for r in predict_batch("line -> label: Literal['a','b','c']", [{"line": h.text} for h in sample])]
print(labels, budget())
DRAFT(answer="so far")
"""
    with ScriptedModel(cells(code, "SUBMIT(answer=str(labels))")) as model:
        ran = run_job(a_spec(model=model.url, input_artifacts=(evidence_of(log),)))

    report = _verify(ran)

    assert report.verified
    assert (report.cells, report.same) == (2, 2)


def test_a_replay_names_the_first_cell_that_differs(tmp_path):
    log = tmp_path / "app.log"
    log.write_text("one\n")
    spec = a_spec(
        playbook="# %%\nx = 1\n# %%\nprint(evidence['app.log'].text)\n# %%\nSUBMIT(answer='x')\n",
        input_artifacts=(evidence_of(log),),
    )
    ran = run_job(spec)
    log.write_text("two\n")

    report = _verify(ran)

    assert not report.verified
    assert (report.divergence.iteration, report.divergence.what) == (2, "stdout")
