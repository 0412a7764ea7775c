"""The recovery runbook: a job that went wrong on one page, and every way out of it, with actor and reason on record."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from controlplane.adapters import schema, schema_access
from controlplane.adapters.trace_files import TraceFile, verified
from controlplane.domain.identity import Caller, Scope
from controlplane.errors import Denied, InvalidRequest
from controlplane.watchdogs import lease_reaper
from rlm_worker.contracts.gateway import Claimed, NotClaimed
from rlm_worker.contracts.trace import CellProposed, StopObserved, StopVerified, SubcallLost
from tests.integration.controlplane.hands import KEY, answered, asked


def audited(app) -> list[tuple[str, str, str]]:
    with app.store.database.reader.begin() as connection:
        rows = connection.execute(sa.select(schema_access.audit)).mappings().all()
    return [(row["principal"], row["action"], row["reason"]) for row in rows]


def lose(app, job_id: str) -> None:
    with app.store.database.alone() as connection:
        connection.execute(sa.update(schema.lease).where(schema.lease.c.job_id == job_id).values(until_ms=1))
    assert lease_reaper.run_once(app.desk) == 1


def quarantined(app, hands):
    """A job that took three workers down, with a call under way."""
    worker = hands()
    for generation in (1, 2, 3):
        worker = replace(worker, generation=generation)
        worker.claim()
        if generation == 1:
            worker.record(asked(0), answered(0), asked(1))
        lose(app, worker.job_id)
    assert app.job(worker.job_id).state == "quarantined"
    return worker


@pytest.mark.requirement(
    "S1-RUNBOOK-1", "S1-RUNBOOK-2", "S1-RUNBOOK-3", "S1-RUNBOOK-4", "S1-RUNBOOK-5", "S1-RUNBOOK-6"
)
def test_the_page_of_a_job_shows_where_it_stands_and_what_is_pending(app, hands):
    worker = hands()
    worker.claim()
    worker.record(CellProposed(iteration=2, driver="playbook", code="x"))
    worker.record(asked(0), answered(0), asked(1))

    case = app.case(worker.job_id)

    assert case.checkpoint is None
    assert (case.step_status, case.iteration) == ("started", 2)
    assert (case.last_event.kind, case.last_event.seq) == ("subcall_started", 3)
    assert [(call.ordinal, call.key, call.fence, call.model) for call in case.pending] == [(1, KEY, 1, "m")]
    assert case.pending[0].hold["input_tokens"] == 100
    assert case.observed.kind == "subcall_finished"
    assert {"pause", "stop", "kill", "retune"} <= set(case.choices)
    lose(app, worker.job_id)
    worker.generation = 2
    worker.claim()
    worker.record(SubcallLost(ordinal=1, key=KEY, charged=asked(1).hold))
    worker.settle(status="failed", failure_class="model_error", structured_output=None, answered_by="nobody")
    after = app.case(worker.job_id)
    assert after.checkpoint is not None
    assert after.checkpoint.state["status"] == "failed"
    assert after.choices == ("retry", "complete", "fork")


@pytest.mark.requirement("S1-RUNBOOK-7", "S1-RUNBOOK-8", "S1-RUNBOOK-10", "S1-STUCK-6")
def test_a_quarantined_job_is_retried_by_an_operator_from_its_record_and_never_by_itself(app, hands):
    worker = quarantined(app, hands)
    assert isinstance(replace(worker, generation=4).claim(), NotClaimed)

    view = app.retry(worker.job_id, reason="the host was out of memory")

    assert (view.state, view.result) == ("queued", None)
    worker = replace(worker, generation=view.generation)
    claimed = worker.claim()
    assert isinstance(claimed, Claimed)
    assert claimed.trace_events == 3
    worker.record(SubcallLost(ordinal=1, key=KEY, charged=asked(1).hold))
    worker.settle()
    done = app.job(worker.job_id)
    assert (done.state, done.usage.subcalls, done.usage.input_tokens) == ("succeeded", 2, 180)
    assert app.task(done.task_id).status == "completed"
    app.verify_receipts(done.task_id)
    app.verify_trace(done.job_id)
    assert ("operator", "job.retry", "the host was out of memory") in audited(app)
    with app.store.read() as tx:
        account = tx.budgets.get("tenant:local")
    assert (account.held.subcalls, account.spent.subcalls, account.spent.input_tokens) == (0, 2, 180)


def test_a_job_that_ended_at_its_limit_is_forked_and_not_retried(app, hands):
    worker = hands()
    worker.claim()
    worker.settle(
        status="failed", failure_class="budget_exhausted", structured_output=None, answered_by="nobody"
    )

    with pytest.raises(InvalidRequest, match="fork it with a larger budget"):
        app.retry(worker.job_id, reason="again")


@pytest.mark.requirement("S1-RUNBOOK-7", "S1-RUNBOOK-10")
@pytest.mark.parametrize("state", ["quarantined", "held"])
def test_an_operator_completes_a_job_by_hand_with_an_answer_that_fits(app, hands, state):
    if state == "quarantined":
        worker = quarantined(app, hands)
    else:
        worker = hands()
        worker.claim()
        app.stop(worker.job_id, order="pause", by="ada")
        worker.record(StopObserved(order="pause"), StopVerified(kill_ms=1))
    with pytest.raises(InvalidRequest, match="does not fit"):
        app.complete(worker.job_id, {"answer": 7}, reason="I looked")

    view = app.complete(worker.job_id, {"answer": "seven"}, reason="I looked")

    assert view.state == "succeeded"
    assert (view.result.structured_output, view.result.answered_by) == ({"answer": "seven"}, "operator")
    assert "operator: I looked" in view.result.message
    assert app.task(view.task_id).status == "completed"
    app.verify_receipts(view.task_id)
    assert ("operator", "job.complete", "I looked") in audited(app)
    with pytest.raises(InvalidRequest):
        app.complete(worker.job_id, {"answer": "eight"}, reason="again")


@pytest.mark.requirement("S1-RUNBOOK-7")
def test_a_job_at_work_is_not_completed_behind_its_worker(app, hands):
    worker = hands()
    worker.claim()

    with pytest.raises(InvalidRequest, match="at work"):
        app.complete(worker.job_id, {"answer": "x"}, reason="r")


@pytest.mark.requirement("S1-RUNBOOK-8", "S1-RUNBOOK-10")
def test_resuming_and_cancelling_by_the_runbook_say_who_and_why(app, hands):
    worker = hands()
    worker.claim()
    app.stop(worker.job_id, order="pause", by="ada")
    worker.record(StopObserved(order="pause"), StopVerified(kill_ms=1))

    assert app.recover(worker.job_id, reason="maintenance is over").state == "queued"
    assert app.cancel(worker.job_id, reason="not needed").state == "stopped"

    assert audited(app) == [
        ("operator", "job.resume", "maintenance is over"),
        ("operator", "job.stop", "not needed"),
    ]
    with pytest.raises(InvalidRequest, match="why"):
        app.recover(worker.job_id, reason="")


@pytest.mark.requirement("S1-RUNBOOK-9")
def test_a_case_is_exported_as_a_file_that_stands_for_itself(app, hands, tmp_path):
    worker = quarantined(app, hands)
    path = tmp_path / "case.jsonl"

    app.export_case(worker.job_id, path, reason="the meter was wrong")

    with TraceFile(path) as trace:
        assert len(list(verified(trace))) == 3
        assert trace.header.spec == app.job(worker.job_id).spec
        assert trace.header.result.failure_class == "quarantined"


@pytest.mark.parametrize("role", ["viewer", "submitter"])
def test_only_operators_carry_out_the_runbook(app, hands, role):
    worker = quarantined(app, hands)
    other = app.acting_as(Caller(name="x", scope=Scope("local"), roles=frozenset({role})))

    for act in (
        lambda: other.retry(worker.job_id, reason="r"),
        lambda: other.complete(worker.job_id, {"answer": "x"}, reason="r"),
    ):
        with pytest.raises(Denied):
            act()
