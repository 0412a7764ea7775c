"""Stuck conditions: each is found once, with evidence, an event and a receipt, and acted on by policy; over when it is over."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from controlplane.adapters import schema
from controlplane.domain.findings import read_policy
from controlplane.domain.identity import Caller, Scope
from controlplane.handlers.workers import register
from controlplane.ports_control import StuckRules
from controlplane.watchdogs import lease_reaper
from controlplane.watchdogs.stuck_keeper import StuckKeeper
from rlm_worker.contracts.gateway import LeaseLost, ParkRequest
from rlm_worker.contracts.trace import CellFinished, CellProposed
from tests.integration.controlplane.hands import Hands, answered, asked

RULES = StuckRules(
    progress_ms=60_000, overdue_ms=60_000, answer_ms=60_000, person_ms=60_000, dispatch_ms=60_000, attempts=3
)
LONG_AGO = 1_000_000


def keeper(app, policy: str = "", **rules: Any) -> StuckKeeper:
    return StuckKeeper(app.desk, rules=replace(RULES, **rules), policy=read_policy(policy))


def change(app, table: sa.Table, job_id: str, **values: Any) -> None:
    """What time, or a defect, would do."""
    with app.store.database.alone() as connection:
        connection.execute(sa.update(table).where(table.c.job_id == job_id).values(**values))


def dispatched(app) -> None:
    """Every job was sent, so that no other finding is made."""
    with app.store.database.alone() as connection:
        connection.execute(sa.update(schema.job).values(dispatched_ms=1))


def at_work(hands, **fields: Any) -> Hands:
    worker = hands(**fields)
    worker.claim()
    worker.record(CellProposed(iteration=1, driver="playbook", code="x"))
    return worker


def no_progress(app, hands) -> str:
    worker = at_work(hands)
    change(app, schema.job, worker.job_id, recorded_ms=LONG_AGO)
    change(app, schema.lease, worker.job_id, granted_ms=LONG_AGO)
    return worker.job_id


def wait_overdue(app, hands) -> str:
    worker = at_work(hands)
    at = datetime.now(UTC) - timedelta(hours=1)
    request = ParkRequest(job_id=worker.job_id, fence=1, reason="asked", detail="?", not_before=at)
    worker.gateway.park(request)
    return worker.job_id


def retries_over(app, hands) -> str:
    worker = at_work(hands)
    change(app, schema.job, worker.job_id, attempts=6)
    return worker.job_id


def never_answered(app, hands) -> str:
    worker = at_work(hands)
    worker.record(asked(0), answered(0), asked(1))
    change(app, schema.job, worker.job_id, recorded_ms=LONG_AGO)
    return worker.job_id


def person_never_answered(app, hands) -> str:
    worker = at_work(hands)
    worker.gateway.park(ParkRequest(job_id=worker.job_id, fence=1, reason="asked", detail="?"))
    change(app, schema.job, worker.job_id, updated_ms=LONG_AGO)
    return worker.job_id


def crashed_repeatedly(app, hands) -> str:
    worker = hands()
    for generation in (1, 2, 3):
        replace(worker, generation=generation).claim()
        change(app, schema.lease, worker.job_id, until_ms=1)
        lease_reaper.run_once(app.desk)
    assert app.job(worker.job_id).state == "quarantined"
    return worker.job_id


def running_without_lease(app, hands) -> str:
    worker = at_work(hands)
    with app.store.database.alone() as connection:
        connection.execute(sa.delete(schema.lease).where(schema.lease.c.job_id == worker.job_id))
    return worker.job_id


def leased_without_attempt(app, hands) -> str:
    worker = at_work(hands)
    change(app, schema.attempt, worker.job_id, ended_ms=1)
    return worker.job_id


def leased_and_not_at_work(app, hands) -> str:
    worker = at_work(hands)
    change(app, schema.job, worker.job_id, state="held")
    return worker.job_id


def never_dispatched(app, hands) -> str:
    job_id = hands().job_id
    change(app, schema.job, job_id, updated_ms=LONG_AGO)
    return job_id


CASES = [
    pytest.param(no_progress, "no_progress", marks=pytest.mark.requirement("S1-STUCK-1", "LESSON-24")),
    pytest.param(wait_overdue, "wait_overdue", marks=pytest.mark.requirement("S1-STUCK-2")),
    pytest.param(retries_over, "retries_over", marks=pytest.mark.requirement("S1-STUCK-3")),
    pytest.param(never_answered, "never_answered", marks=pytest.mark.requirement("S1-STUCK-5")),
    pytest.param(person_never_answered, "never_answered", marks=pytest.mark.requirement("S1-STUCK-5")),
    pytest.param(crashed_repeatedly, "crashed_repeatedly", marks=pytest.mark.requirement("S1-STUCK-6")),
    pytest.param(running_without_lease, "state_disagrees", marks=pytest.mark.requirement("S1-STUCK-7")),
    pytest.param(leased_without_attempt, "state_disagrees", marks=pytest.mark.requirement("S1-STUCK-7")),
    pytest.param(leased_and_not_at_work, "state_disagrees", marks=pytest.mark.requirement("S1-STUCK-7")),
    pytest.param(never_dispatched, "never_dispatched", marks=pytest.mark.requirement("S1-STUCK-7")),
]


@pytest.mark.parametrize(("make_stuck", "kind"), CASES)
def test_a_stuck_job_is_found_once_with_its_evidence_and_a_receipt(app, hands, make_stuck, kind):
    healthy = at_work(hands)
    job_id = make_stuck(app, hands)
    watch = keeper(app, f"{kind}=warn")

    assert (watch.run_once(), watch.run_once()) == (1, 0)

    found = app.findings()
    assert [(each.job_id, each.kind, each.action) for each in found] == [(job_id, kind, "warn")]
    assert found[0].detail
    assert found[0].evidence["since_ms"] >= 0
    receipts = app.receipts(app.job(job_id).task_id)
    assert [each.body["condition"] for each in receipts if each.kind == "job_stuck"] == [kind]
    assert app.job(healthy.job_id).state == "running"


@pytest.mark.requirement("S1-STUCK-1", "LESSON-24")
@pytest.mark.parametrize(
    ("action", "desired", "state"),
    [("pause", "pause", "running"), ("stop", "stop", "stopping"), ("kill", "kill", "stopping")],
)
def test_the_policy_says_what_is_done_and_it_is_done_once(app, hands, action, desired, state):
    job_id = no_progress(app, hands)
    watch = keeper(app, f"no_progress={action}")

    watch.run_once()
    watch.run_once()

    view = app.job(job_id)
    assert (view.desired, view.state, view.stop.by) == (desired, state, "stuck_keeper")
    kinds = [each.kind for each in app.receipts(view.task_id)]
    assert kinds.count("job_stop_requested") == 1
    app.verify_receipts(view.task_id)


def test_a_job_that_is_quarantined_by_policy_is_taken_from_its_worker(app, hands):
    worker = at_work(hands)
    change(app, schema.job, worker.job_id, recorded_ms=LONG_AGO)
    change(app, schema.lease, worker.job_id, granted_ms=LONG_AGO)

    keeper(app, "no_progress=quarantine").run_once()

    view = app.job(worker.job_id)
    assert (view.state, view.result.failure_class) == ("quarantined", "quarantined")
    with pytest.raises(LeaseLost):
        worker.record(CellProposed(iteration=2, driver="playbook", code="x"))
    app.verify_receipts(view.task_id)


def test_a_finding_is_over_when_the_job_moves_again_and_is_made_anew_when_it_stops_again(app, hands):
    worker = at_work(hands)
    watch = keeper(app, "no_progress=warn")
    for again in (1, 2):
        change(app, schema.job, worker.job_id, recorded_ms=LONG_AGO)
        change(app, schema.lease, worker.job_id, granted_ms=LONG_AGO)
        assert watch.run_once() == 1
        worker.record(CellProposed(iteration=again + 1, driver="playbook", code=f"x = {again}"))
        watch.run_once()
        assert app.findings() == []

    assert len(app.findings(only_open=False)) == 2


def test_a_job_may_take_the_time_that_it_was_given(app, hands):
    patient = at_work(hands, progress_seconds=10**10)
    change(app, schema.job, patient.job_id, recorded_ms=LONG_AGO)
    change(app, schema.lease, patient.job_id, granted_ms=LONG_AGO)

    assert keeper(app).run_once() == 0


def test_a_quarantined_job_is_a_finding_until_an_operator_retries_it(app, hands):
    job_id = crashed_repeatedly(app, hands)
    watch = keeper(app)
    watch.run_once()
    watch.run_once()
    assert [each.kind for each in app.findings()] == ["crashed_repeatedly"]

    app.retry(job_id, reason="the worker was at fault")
    dispatched(app)
    watch.run_once()

    assert app.findings() == []


def test_a_job_that_waits_for_a_kill_switch_is_not_stuck(app, hands):
    never_dispatched(app, hands)
    app.engage("all", reason="pause for all")

    assert keeper(app).run_once() == 0


def test_errors_in_a_row_and_the_same_code_again_are_found_in_the_trace(app, hands):
    worker = hands()
    worker.claim()
    for iteration in range(1, 11):
        worker.record(
            CellProposed(iteration=iteration, driver="model", code="1 / 0"),
            CellFinished(
                iteration=iteration,
                outcome="error",
                stdout="",
                stderr="",
                stdout_bytes=0,
                stderr_bytes=0,
                error_message="division by zero",
                digest="a" * 64,
            ),
        )

    assert keeper(app).run_once() == 2

    found = {each.kind: each for each in app.findings()}
    assert set(found) == {"errors_in_a_row", "same_code_again"}
    assert "division by zero" in found["errors_in_a_row"].detail


def test_a_job_that_spends_too_fast_is_found(app, hands):
    worker = hands()
    worker.claim()
    watch = keeper(app, tokens_per_minute=1)
    worker.record(asked(0), answered(0))
    watch.run_once()
    for tail in watch._memory.tails.values():
        tail.at_ms -= 1_000
    worker.record(asked(1), answered(1, input_tokens=100))

    assert watch.run_once() == 1
    assert app.findings()[0].kind == "spends_fast"


def test_findings_are_shown_to_their_own_tenant(app, hands):
    for tenant_id in ("acme", "other"):
        change(app, schema.job, hands(tenant_id=tenant_id).job_id, updated_ms=LONG_AGO)
    keeper(app).run_once()
    acme = app.acting_as(Caller(name="v", scope=Scope("acme"), roles=frozenset({"viewer"})))

    assert len(app.findings()) == 2
    assert [each.tenant_id for each in acme.findings()] == ["acme"]


@pytest.mark.requirement(
    "S1-STUCK-8", "S1-STUCK-9", "S1-STUCK-10", "S1-STUCK-11", "S1-STUCK-12", "S1-STUCK-14", "S1-STUCK-15"
)
def test_monitors_tell_how_many_how_old_how_often_and_who_was_heard_of(app, hands):
    running, waiting = at_work(hands), hands(tenant_id="acme")
    register(app.desk, running.worker_id, host="h", slots=2)
    change(app, schema.job, running.job_id, losses=2, created_ms=LONG_AGO)
    change(app, schema.job, waiting.job_id, created_ms=LONG_AGO)
    hands().work()
    failed = hands()
    failed.claim()
    failed.settle(status="failed", failure_class="model_error", structured_output=None, answered_by="nobody")

    seen = app.monitors()

    assert {state: figures.jobs for state, figures in seen.jobs.items()} == {"running": 1, "queued": 1}
    assert seen.oldest_running_seconds > 10**6
    assert seen.oldest_waiting_seconds > 10**6
    assert (seen.jobs_retried, seen.most_retries) == (1, 2)
    assert seen.ended_last_hour == {"succeeded": 1, "failed": 1}
    assert seen.failure_rate == 0.5
    assert seen.queue_depth == 1
    assert [(each.worker_id, each.jobs, each.silent_seconds < 60) for each in seen.workers] == [
        (running.worker_id, 1, True)
    ]
    acme = app.acting_as(Caller(name="v", scope=Scope("acme"), roles=frozenset({"viewer"}))).monitors()
    assert (set(acme.jobs), acme.workers, acme.queue_depth) == ({"queued"}, (), 1)
