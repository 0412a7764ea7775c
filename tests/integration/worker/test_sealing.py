"""Evidence is sealed beside the job: what goes wrong with that is said, and never costs the answer."""

import threading

from rlm_worker.contracts import Budget
from rlm_worker.job import EvidenceKeeper
from tests.builders import a_spec, evidence_of
from tests.engine import Ran, attempt, run_job
from tests.memory_gateway import MemoryGateway

BOOK = "# %%\nSUBMIT(answer='x')\n"


def a_log(tmp_path):
    log = tmp_path / "app.log"
    log.write_text("one\n")
    return evidence_of(log)


def test_evidence_that_cannot_be_sealed_is_told_with_the_answer(tmp_path):
    def vanished(ref, enough):
        raise FileNotFoundError(2, "No such file", ref.name)

    keeper = EvidenceKeeper(seal=vanished, changed=lambda ref: False)
    ran = run_job(a_spec(playbook=BOOK, input_artifacts=(a_log(tmp_path),)), evidence=keeper)

    assert (ran.result.status, ran.output) == ("succeeded", {"answer": "x"})
    assert "evidence could not be sealed" in ran.result.message


def test_evidence_that_changed_is_told(tmp_path):
    keeper = EvidenceKeeper(seal=lambda ref, enough: "a" * 64, changed=lambda ref: True)
    ran = run_job(a_spec(playbook=BOOK, input_artifacts=(a_log(tmp_path),)), evidence=keeper)

    assert ran.of("evidence_sealed")[0].changed
    assert "changed while the job ran: app.log" in ran.result.message


def test_a_stop_is_heard_while_large_evidence_is_still_being_sealed(tmp_path):
    ended, gateway = (
        threading.Event(),
        MemoryGateway(a_spec(playbook=BOOK, input_artifacts=(a_log(tmp_path),))),
    )

    def slow(ref, enough):
        enough.wait(20)
        ended.set()

    keeper = EvidenceKeeper(seal=slow, changed=lambda ref: False)
    running = threading.Thread(target=attempt, args=(gateway,), kwargs={"evidence": keeper}, daemon=True)
    running.start()
    while not any(record.kind == "submit_accepted" for record in list(gateway.records)):
        running.join(0.01)
    gateway.order("stop")
    running.join(10)

    ran = Ran(gateway)
    assert ran.output == {"answer": "x"}
    assert "not sealed" in ran.result.message
    assert ended.is_set(), "the hashing thread is told to stop"


def test_sealing_takes_no_more_time_than_the_job_has(tmp_path):
    keeper = EvidenceKeeper(seal=lambda ref, enough: enough.wait(30) and None, changed=lambda ref: False)
    spec = a_spec(playbook=BOOK, input_artifacts=(a_log(tmp_path),), budget=Budget(max_wall_time_ms=1_500))

    ran = run_job(spec, evidence=keeper)

    assert ran.output == {"answer": "x"}
    assert "not sealed" in ran.result.message
    assert ran.result.usage.wall_time_ms < 10_000
