"""Limits that change while a job is queued, runs, or waits: who, why, within what the tenant has, and told to the worker."""

from decimal import Decimal

import pytest

from controlplane.domain.budget import Limits
from controlplane.domain.identity import Caller, Scope
from controlplane.errors import Denied, InvalidRequest, OverBudget
from rlm_worker.contracts import Budget
from rlm_worker.contracts.gateway import AwaitOrdersRequest, Claimed, HoldRefused, ParkRequest, RenewRequest
from tests.integration.controlplane.hands import answered, asked


def limit_tenant(app, **limits: int) -> None:
    with app.store.write() as tx:
        tx.budgets.set_limits("tenant:local", Limits(**limits))


def tenant_held(app) -> int:
    with app.store.read() as tx:
        return tx.budgets.get("tenant:local").held.subcalls


def balance(app) -> int:
    """Subcalls held at the tenant, as the ledger tells it."""
    signs = {"hold": 1, "release": -1, "settle": 0}
    with app.store.read() as tx:
        return sum(signs[each.kind] * each.amount.subcalls for each in tx.budgets.entries("tenant:local"))


@pytest.mark.requirement("CARD-19")
def test_a_running_job_goes_on_past_its_first_limit_once_that_is_raised(app, hands):
    worker = hands(budget=Budget(max_subcalls=1))
    worker.claim()
    worker.record(asked(0), answered(0))
    with pytest.raises(HoldRefused):
        worker.record(asked(1))

    view = app.retune(worker.job_id, {"max_subcalls": 3}, reason="the answer is near")

    worker.record(asked(1), answered(1))
    assert (view.budget.max_subcalls, view.budget_version) == (3, 1)
    receipt = next(each for each in app.receipts(view.task_id) if each.kind == "job_retuned")
    assert (receipt.body["by"], receipt.body["reason"]) == ("operator", "the answer is near")
    app.verify_receipts(view.task_id)


def test_the_worker_hears_it_by_both_ways_until_it_says_that_it_knows(app, hands):
    worker = hands()
    worker.claim()
    app.retune(worker.job_id, {"max_iterations": 40}, reason="r")
    gateway = app.gateway()

    for seen, told in ((0, True), (0, True), (1, False)):
        renewed = gateway.renew(RenewRequest(job_id=worker.job_id, fence=1, budget_seen=seen))
        request = AwaitOrdersRequest(job_id=worker.job_id, fence=1, budget_seen=seen, timeout_ms=1)
        awaited = gateway.await_orders(request)
        assert [answer.retune is not None for answer in (renewed, awaited)] == [told, told]

    assert renewed.desired == "run"


def test_a_later_attempt_begins_with_the_limits_of_the_last_change(app, hands):
    worker = hands()
    app.retune(worker.job_id, {"max_iterations": 40}, reason="r")
    app.retune(worker.job_id, {"max_cost_usd": "0.5"}, reason="r")

    claimed = worker.claim()

    assert isinstance(claimed, Claimed)
    assert (claimed.retune.version, claimed.retune.budget.max_iterations) == (2, 40)
    assert claimed.retune.budget.max_cost_usd == Decimal("0.5")
    assert claimed.spec.budget.max_iterations == 20


@pytest.mark.requirement("CARD-19")
def test_a_limit_is_never_set_below_what_is_spent_and_held(app, hands):
    worker = hands(budget=Budget(max_subcalls=10))
    worker.claim()
    worker.record(asked(0), answered(0), asked(1))

    for changes in ({"max_subcalls": 1}, {"max_tokens": 100}, {"max_input_tokens": 1}):
        with pytest.raises(OverBudget, match="has used, or holds"):
            app.retune(worker.job_id, changes, reason="less")
    app.retune(worker.job_id, {"max_subcalls": 2}, reason="less")

    with pytest.raises(HoldRefused):
        worker.record(asked(2))


@pytest.mark.requirement("CARD-19")
def test_the_tenants_hold_follows_and_what_the_tenant_has_not_is_refused(app, hands):
    limit_tenant(app, subcalls=15)
    worker = hands(budget=Budget(max_subcalls=10))
    worker.claim()
    assert tenant_held(app) == 10

    app.retune(worker.job_id, {"max_subcalls": 15}, reason="r")
    assert tenant_held(app) == balance(app) == 15
    with pytest.raises(OverBudget, match="tenant"):
        app.retune(worker.job_id, {"max_subcalls": 16}, reason="r")
    app.retune(worker.job_id, {"max_subcalls": 4}, reason="r")

    assert tenant_held(app) == balance(app) == 4
    assert app.job(worker.job_id).budget.max_subcalls == 4
    worker.settle()
    assert tenant_held(app) == balance(app) == 0


def test_a_job_that_waits_for_a_higher_limit_goes_on_with_it(app, hands):
    worker = hands(budget=Budget(max_subcalls=1), on_limit="ask")
    worker.claim()
    worker.gateway.park(ParkRequest(job_id=worker.job_id, fence=1, reason="budget", detail="subcalls"))
    waiting = app.job(worker.job_id)
    assert (waiting.state, waiting.parked_for) == ("parked", "budget")
    assert "a higher limit" in waiting.waiting_for

    view = app.retune(worker.job_id, {"max_subcalls": 2}, reason="go on")

    assert (view.state, view.generation) == ("queued", 2)


def test_a_change_without_a_reason_without_sense_or_too_late_is_refused(app, hands):
    worker = hands()
    for changes, reason in (
        ({}, "r"),
        ({"max_subcalls": -1}, "r"),
        ({"nothing": 1}, "r"),
        ({"max_depth": 2}, ""),
    ):
        with pytest.raises(InvalidRequest):
            app.retune(worker.job_id, changes, reason=reason)
    worker.work()

    with pytest.raises(InvalidRequest, match="too late"):
        app.retune(worker.job_id, {"max_subcalls": 99}, reason="r")


def test_only_who_may_retune_does(app, hands):
    worker = hands(tenant_id="acme")
    submitter = Caller(name="s", scope=Scope("acme"), roles=frozenset({"submitter"}))

    with pytest.raises(Denied):
        app.acting_as(submitter).retune(worker.job_id, {"max_subcalls": 99}, reason="r")


def test_a_fork_has_the_limits_that_its_source_has_now(app, hands):
    from rlm_worker.contracts.trace import CellProposed, CellRejected

    worker = hands()
    worker.claim()
    worker.record(
        CellProposed(iteration=1, driver="playbook", code="x"), CellRejected(iteration=1, reason="r")
    )
    app.retune(worker.job_id, {"max_iterations": 33}, reason="r")

    assert app.fork(worker.job_id, at=1).spec.budget.max_iterations == 33
