"""A database that does not answer is nobody's decision: the worker is told to try again, and trying again is safe."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from controlplane.adapters import sqlite
from controlplane.bootstrap import App, open_app
from rlm_worker.contracts.gateway import (
    ClaimRequest,
    GatewayDown,
    ReadTraceRequest,
    RecordRequest,
    RenewRequest,
    SettleRequest,
)
from rlm_worker.contracts.trace import AttemptStarted
from tests.integration.controlplane.hands import Hands, a_request, answered, asked


@pytest.fixture
def app(settings, monkeypatch) -> Iterator[App]:
    monkeypatch.setattr(sqlite, "BUSY_MS", 20)
    opened = open_app(settings)
    yield opened
    opened.close()


@contextmanager
def locked(app: App) -> Iterator[None]:
    """Another process is in the middle of a write."""
    other = sqlite.library().connect(str(app.store.place), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


def test_every_write_to_a_busy_database_says_try_again_and_succeeds_when_tried_again(app):
    job_id = app.submit(a_request()).job_id
    gateway = app.gateway()
    worker = Hands(gateway=gateway, job_id=job_id)
    claim = ClaimRequest(worker_id="w", job_id=job_id, generation=1)
    with locked(app), pytest.raises(GatewayDown):
        gateway.claim(claim)
    worker.claim()

    renew = RenewRequest(job_id=job_id, fence=worker.fence)
    with locked(app), pytest.raises(GatewayDown):
        gateway.renew(renew)
    gateway.renew(renew)

    group = worker.links(AttemptStarted(attempt=1, worker_id="w"), asked(0), answered(0))
    record = RecordRequest(job_id=job_id, fence=worker.fence, records=group)
    with locked(app), pytest.raises(GatewayDown):
        gateway.record(record)
    assert gateway.record(record) == gateway.record(record)
    worker.events, worker.head = len(group), group[-1].hash

    settle = SettleRequest(job_id=job_id, fence=worker.fence, result=worker.result())
    with locked(app), pytest.raises(GatewayDown):
        gateway.settle(settle)
    first = gateway.settle(settle)

    version = app.task(app.job(job_id).task_id).version
    assert gateway.settle(settle) == first
    view = app.job(job_id)
    assert (view.state, view.trace_events, view.usage.subcalls) == ("succeeded", 3, 1)
    assert app.task(view.task_id).version == version
    app.verify_receipts(view.task_id)


def test_reading_goes_on_while_another_writes(app):
    worker = Hands(gateway=app.gateway(), job_id=app.submit(a_request()).job_id)
    worker.claim()

    with locked(app):
        page = app.gateway().read_trace(ReadTraceRequest(job_id=worker.job_id, fence=worker.fence))

    assert page.records == ()


def test_a_group_of_which_a_part_is_stored_is_taken_from_there_on(app):
    worker = Hands(gateway=app.gateway(), job_id=app.submit(a_request()).job_id)
    worker.claim()
    group = worker.links(asked(0), answered(0), asked(1))
    for records in (group[:2], group, group[1:]):
        app.gateway().record(RecordRequest(job_id=worker.job_id, fence=worker.fence, records=records))

    view = app.job(worker.job_id)
    assert (view.trace_events, view.usage.subcalls) == (3, 2)
