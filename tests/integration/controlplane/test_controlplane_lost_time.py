"""A worker that crashed: how long it worked, and what may be said of it."""

import os
from dataclasses import replace

import pytest
import sqlalchemy as sa

from controlplane.adapters import processes, schema
from controlplane.bootstrap import App
from controlplane.domain.identity import EVERY_TENANT
from controlplane.watchdogs import lease_reaper
from rlm_worker.contracts.gateway import Claimed
from rlm_worker.contracts.trace import AttemptStarted
from tests.integration.controlplane.hands import Hands

GRANTED = 1_000_000


def gone_worker() -> str:
    """A worker of this very place whose process cannot be there: its pid is above the highest one."""
    return f"{processes.worker_id().rsplit('/', 2)[0]}/4194304/1"


def back_then(app: App, *, renewed: int, recorded: int, until: int) -> None:
    """Move the only lease far into the past; the times are milliseconds after it was granted."""
    with app.store.database.writer.begin() as connection:
        connection.execute(
            sa.update(schema.lease).values(
                granted_ms=GRANTED, renewed_ms=GRANTED + renewed, until_ms=GRANTED + until
            )
        )
        connection.execute(
            sa.update(schema.attempt).where(schema.attempt.c.ended_ms.is_(None)).values(granted_ms=GRANTED)
        )
        connection.execute(sa.update(schema.job).values(recorded_ms=GRANTED + recorded))


def begun(hands) -> Hands:
    worker = replace(hands(), worker_id=gone_worker())
    worker.claim()
    worker.record(AttemptStarted(attempt=1, worker_id="w"))
    return worker


@pytest.mark.parametrize(
    ("renewed", "recorded", "until", "worked"),
    [(1_000, 1_400, 16_000, 1_400), (5_000, 1_400, 20_000, 5_000), (1_000, 99_000, 16_000, 16_000)],
    ids=["recorded last", "renewed last", "never beyond its lease"],
)
def test_time_between_a_crash_and_its_discovery_is_not_work(app, hands, renewed, recorded, until, worked):
    worker = begun(hands)
    back_then(app, renewed=renewed, recorded=recorded, until=until)

    app.resume(worker.job_id)
    heir = replace(worker, generation=2).claim()

    assert isinstance(heir, Claimed)
    assert heir.spent_wall_time_ms == worked


def test_a_renewal_is_a_sign_of_life(app, hands):
    worker = begun(hands)
    back_then(app, renewed=0, recorded=0, until=10**13)

    with app.store.write() as tx:
        tx.leases.extend(worker.job_id, fence=1, until_ms=10**13)
        lease = tx.leases.get(worker.job_id)

    assert lease is not None
    assert lease.last_sign_of_life(recorded_ms=0) == lease.renewed_ms > GRANTED


@pytest.mark.parametrize("order", ["stop", None])
def test_a_result_made_without_a_worker_has_the_time_of_the_attempt_it_ends(app, hands, order):
    worker = begun(hands)
    if order:
        app.stop(worker.job_id, order=order, by="me")
    else:
        with app.store.write() as tx:
            row = tx.jobs.get(worker.job_id, scope=EVERY_TENANT)
            assert row is not None
            tx.jobs.save(replace(row, state=replace(row.state, losses=2)))
    back_then(app, renewed=1_000, recorded=1_400, until=16_000)

    lease_reaper.run_once(app.desk)

    view = app.job(worker.job_id)
    assert view.state == ("stopped" if order else "quarantined")
    assert view.result is not None
    assert view.result.usage.wall_time_ms == 1_400


def test_a_lease_that_nobody_renews_shows_no_growing_time(app, hands):
    worker = begun(hands)
    back_then(app, renewed=1_000, recorded=1_400, until=16_000)

    assert app.job(worker.job_id).usage.wall_time_ms == 16_000


@pytest.mark.requirement("CARD-22")
@pytest.mark.parametrize("is_gone", [True, False])
def test_a_stop_is_verified_only_when_its_worker_is_provably_gone(app, hands, is_gone):
    worker = replace(hands(), worker_id=gone_worker() if is_gone else processes.worker_id())
    worker.claim()
    app.stop(worker.job_id, by="me", reason="enough")
    back_then(app, renewed=0, recorded=0, until=1)

    lease_reaper.run_once(app.desk)

    view = app.job(worker.job_id)
    assert view.state == "stopped"
    assert view.stop is not None
    assert view.result is not None
    assert view.stop.is_proved == (view.stop.verified_at is not None) == is_gone
    assert view.stop.survivors == (() if is_gone else (os.getpid(),))
    assert ("not verified" in view.result.message) != is_gone
    app.verify_receipts(view.task_id)
