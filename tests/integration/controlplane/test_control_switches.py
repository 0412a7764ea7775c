"""Kill switches: after the commit that engages one nothing that it covers starts, and what is at work is ordered to end."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from controlplane.adapters import schema, schema_access
from controlplane.domain.identity import Caller, Scope
from controlplane.errors import Denied, InvalidRequest, NotFound
from controlplane.handlers import switches
from controlplane.handlers.orders import enter
from controlplane.handlers.workers import register
from rlm_worker.contracts.gateway import AwaitOrdersRequest, Claimed, HoldRefused, NotClaimed
from rlm_worker.contracts.job import ModelDriver, NetworkPolicy
from rlm_worker.contracts.trace import StopObserved, StopVerified
from tests.integration.controlplane.hands import Hands, asked

URL = "http://127.0.0.1:9/v1#writer"


def caller(tenant_id: str | None, *roles: str) -> Caller:
    return Caller(name=f"{tenant_id} {roles}", scope=Scope(tenant_id), roles=frozenset(roles))


def orders_of(worker: Hands) -> str:
    request = AwaitOrdersRequest(job_id=worker.job_id, fence=worker.fence, timeout_ms=1)
    return worker.gateway.await_orders(request).desired


@pytest.mark.requirement("CARD-20", "S1-CANCEL-3")
@pytest.mark.parametrize("scope_kind", ["all", "tenant", "task", "job", "model", "tool", "image"])
def test_a_switch_at_each_scope_keeps_the_queued_waiting_and_kills_what_is_at_work(app, hands, scope_kind):
    fields = {
        "tenant_id": "acme",
        "driver": ModelDriver(model=URL),
        "network_policy": NetworkPolicy(allow=("example.org:443",)),
    }
    at_work, queued = hands(**fields), hands(**fields)
    other = hands(tenant_id="other")
    register(app.desk, at_work.worker_id, host="h", slots=2, image="custody:1.4")
    at_work.claim()
    other = replace(other, worker_id="else/b/1/1")
    other.claim()
    view = app.job(at_work.job_id)
    named = {
        "all": "",
        "tenant": "acme",
        "task": view.task_id,
        "job": view.job_id,
        "model": "http://127.0.0.1:9/v1#w*",
        "tool": "network",
        "image": "custody:*",
    }

    engaged = app.engage(scope_kind, named[scope_kind], action="kill", reason="they run wild")

    assert orders_of(at_work) == "kill"
    assert orders_of(other) == ("kill" if scope_kind == "all" else "run")
    refused = queued.claim()
    if scope_kind in ("task", "job"):
        assert isinstance(refused, Claimed)
    else:
        assert isinstance(refused, NotClaimed)
        assert (refused.reason, "they run wild" in refused.detail) == ("switched_off", True)
        shown = "" if scope_kind == "image" else "they run wild"
        assert shown in app.job(queued.job_id).waiting_for
        app.release(engaged.order_id, reason="it was a mistake")
        assert "they run wild" not in app.job(queued.job_id).waiting_for
        assert isinstance(queued.claim(), Claimed)


@pytest.mark.requirement("LESSON-22")
def test_a_job_submitted_or_forked_while_a_switch_is_engaged_waits_and_says_why(app, hands):
    app.engage("tenant", "acme", action="stop", reason="audit")

    late = hands(tenant_id="acme")

    assert isinstance(late.claim(), NotClaimed)
    assert "audit" in app.job(late.job_id).waiting_for
    assert "audit" in next(view for view in app.jobs() if view.job_id == late.job_id).waiting_for


def test_a_second_press_makes_a_kill_of_a_stop_and_another_switch_does_not(app, hands):
    worker = hands(tenant_id="acme")
    worker.claim()

    app.engage("tenant", "acme", action="stop", reason="enough")
    app.engage("all", action="stop", reason="all of it")
    assert orders_of(worker) == "stop"
    app.engage("tenant", "acme", action="stop", reason="now")

    assert orders_of(worker) == "kill"


@pytest.mark.requirement("CARD-20", "S1-CANCEL-4")
def test_no_call_leaves_a_killed_job_or_goes_to_a_killed_model(app, hands):
    worker = hands(sub_model="http://127.0.0.1:9/v1#cheap")
    worker.claim()
    elsewhere = asked(0).model_copy(update={"model": URL})
    app.engage("model", URL, action="kill", reason="it leaks")

    with pytest.raises(HoldRefused, match="it leaks"):
        worker.record(elsewhere)
    worker.record(asked(0))
    app.engage("job", worker.job_id, action="kill", reason="enough")
    with pytest.raises(HoldRefused, match="enough"):
        worker.record(asked(1))

    assert app.job(worker.job_id).usage.subcalls == 1


def test_jobs_that_a_switch_paused_are_resumed_by_its_release_and_others_stay(app, hands):
    by_switch, by_person = hands(tenant_id="acme"), hands(tenant_id="acme")
    by_switch.claim()
    by_person.claim()
    app.stop(by_person.job_id, order="pause", by="ada")
    engaged = app.engage("tenant", "acme", action="pause", reason="maintenance")
    for worker in (by_switch, by_person):
        worker.record(StopObserved(order="pause"), StopVerified(kill_ms=1))
    assert {app.job(worker.job_id).state for worker in (by_switch, by_person)} == {"held"}

    app.release(engaged.order_id, reason="done")

    assert app.job(by_switch.job_id).state == "queued"
    assert app.job(by_person.job_id).state == "held"
    app.verify_receipts(app.job(by_switch.job_id).task_id)


def test_a_release_before_the_pause_is_carried_out_lets_the_job_go_on_after_it(app, hands):
    worker = hands(tenant_id="acme")
    worker.claim()
    engaged = app.engage("tenant", "acme", action="pause", reason="maintenance")
    app.release(engaged.order_id, reason="done")

    worker.record(StopObserved(order="pause"), StopVerified(kill_ms=1))

    view = app.job(worker.job_id)
    assert (view.state, view.generation, view.desired) == ("queued", 2, "run")
    app.verify_receipts(view.task_id)


@pytest.mark.requirement("S1-CANCEL-1", "S1-CANCEL-6", "S1-CANCEL-8")
def test_every_engagement_and_release_is_in_the_audit_and_each_order_has_a_receipt(app, hands):
    worker = hands(tenant_id="acme")
    worker.claim()
    engaged = app.engage("tenant", "acme", action="stop", reason="they run wild")
    app.release(engaged.order_id, reason="calm again")

    with app.store.database.reader.begin() as connection:
        rows = connection.execute(sa.select(schema_access.audit)).mappings().all()
    assert [(row["action"], row["tenant_id"], row["reason"]) for row in rows] == [
        ("switch.engage", "acme", "they run wild"),
        ("switch.release", "acme", "calm again"),
    ]
    receipts = app.receipts(app.job(worker.job_id).task_id)
    ordered = [receipt.body for receipt in receipts if receipt.kind == "job_stop_requested"]
    assert [body["by"] for body in ordered] == [f"switch:{engaged.order_id}"]
    assert "they run wild" in ordered[0]["reason"]
    history = app.switches(only_in_force=False)
    assert [(each.released_by, each.released_reason) for each in history] == [("operator", "calm again")]
    assert app.switches() == []


@pytest.mark.parametrize("scope_kind", ["all", "image", "tenant", "job", "task", "tool"])
def test_whoever_belongs_to_a_tenant_reaches_nobody_else(app, hands, scope_kind):
    foreign = hands(tenant_id="other")
    foreign.claim()
    view = app.job(foreign.job_id)
    named = {
        "all": "",
        "image": "x",
        "tenant": "other",
        "job": view.job_id,
        "task": view.task_id,
        "tool": "n",
    }
    acme = app.acting_as(caller("acme", "operator"))
    further = {"tenant_id": "other"} if scope_kind == "tool" else {}

    with pytest.raises((Denied, NotFound)):
        acme.engage(scope_kind, named[scope_kind], reason="mine", **further)

    assert orders_of(foreign) == "run"
    assert app.switches() == []


def test_a_tenants_operator_sees_what_covers_it_and_releases_only_its_own(app):
    of_all = app.engage("all", reason="stop everything")
    app.engage("tenant", "other", reason="theirs")
    acme = app.acting_as(caller("acme", "operator"))
    own = acme.engage("model", "openai:*", reason="ours")

    assert [each.order_id for each in acme.switches()] == [own.order_id, of_all.order_id]
    assert own.tenant_id == "acme"
    with pytest.raises(Denied):
        acme.release(of_all.order_id, reason="please")
    acme.release(own.order_id, reason="done")
    with pytest.raises(InvalidRequest, match="already"):
        acme.release(own.order_id, reason="again")


@pytest.mark.parametrize("role", ["viewer", "submitter", "worker"])
def test_who_may_not_engage_is_denied(app, role):
    with pytest.raises(Denied):
        app.acting_as(caller("acme", role)).engage("tenant", "acme", reason="r")


def test_a_job_at_work_that_slipped_through_is_ordered_by_the_keeper(app, hands):
    worker = hands(tenant_id="acme")
    app.engage("tenant", "acme", action="kill", reason="r")
    with app.store.database.alone() as connection:
        row = connection.execute(sa.select(schema.control_order)).mappings().one()
        connection.execute(sa.delete(schema.control_order))
    worker.claim()
    with app.store.database.alone() as connection:
        connection.execute(sa.insert(schema.control_order), dict(row))

    assert switches.enforce(app.desk) == 1
    assert switches.enforce(app.desk) == 0

    assert orders_of(worker) == "kill"


def test_orders_are_entered_once_although_their_mark_was_lost(app, hands):
    """A crash between the commit and the mark beside the database."""
    worker = hands()
    worker.claim()
    app.desk.side.entered = lambda marks: None
    app.stop(worker.job_id, by="ada", reason="enough")
    assert len(app.desk.side.pending()) == 1

    enter(app.desk)
    enter(app.desk)

    assert app.job(worker.job_id).desired == "stop"
    kinds = [receipt.kind for receipt in app.receipts(app.job(worker.job_id).task_id)]
    assert kinds.count("job_stop_requested") == 1
