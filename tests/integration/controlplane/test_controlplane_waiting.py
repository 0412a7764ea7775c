"""A job that may not start: it waits and says what for, or ends when it could wait for ever."""

from dataclasses import replace

import pytest

from controlplane.bootstrap import open_app
from controlplane.domain.budget import Limits
from controlplane.runtime import EmbeddedRuntime
from rlm_worker.contracts import Budget
from rlm_worker.contracts.gateway import Claimed, NotClaimed
from tests.integration.controlplane.hands import Hands, a_request


def limit_tenant(app, **limits) -> None:
    with app.store.write() as tx:
        tx.budgets.set_limits("tenant:local", Limits(**limits))


@pytest.mark.parametrize(
    ("limits", "says"),
    [({"subcalls": 9}, "subcalls: 10 of 9"), ({"cost_nano_usd": 1}, "must name limits in the same units")],
)
def test_a_job_that_can_never_fit_its_tenant_fails_and_says_why(app, hands, limits, says):
    limit_tenant(app, **limits)
    worker = hands(budget=Budget(max_subcalls=10))

    refused = worker.claim()

    assert isinstance(refused, NotClaimed)
    assert refused.reason == "over_budget"
    view = app.job(worker.job_id)
    assert view.state == "failed"
    assert view.result is not None
    assert view.result.failure_class == "budget_exhausted"
    assert says in view.result.message
    assert app.task(view.task_id).status == "failed"
    app.verify_receipts(view.task_id)
    app.verify_trace(view.job_id)


def test_a_job_that_waits_for_its_tenants_budget_shows_it_until_it_starts(app, hands):
    limit_tenant(app, subcalls=15)
    first, second = hands(), hands()
    first.claim()

    second.claim()

    view = app.job(second.job_id)
    assert view.state == "queued"
    assert "would pass its limit of subcalls: 20 of 15" in view.waiting_for
    first.settle()
    assert isinstance(second.claim(), Claimed)
    assert app.job(second.job_id).waiting_for == ""


def test_a_job_that_waits_for_its_turn_shows_it_and_the_one_at_work_does_not(settings):
    app = open_app(replace(settings, tenant_concurrency=1))
    first, second = (Hands(gateway=app.gateway(), job_id=app.submit(a_request()).job_id) for _ in range(2))
    first.claim()

    for worker in (first, second):
        assert isinstance(replace(worker, worker_id="other").claim(), NotClaimed)

    assert app.job(first.job_id).waiting_for == ""
    assert app.job(second.job_id).waiting_for == "tenant local has 1 jobs at work"
    app.close()


def test_a_runtime_ends_a_job_that_can_never_start(app):
    limit_tenant(app, subcalls=1)
    job_id = app.submit(a_request()).job_id

    def make_run(app, worker_id):
        return lambda job, generation: Hands(
            gateway=app.gateway(), job_id=job, generation=generation, worker_id=worker_id
        ).work()

    with EmbeddedRuntime(app, only_jobs={job_id}, make_run=make_run):
        seen = app.store.notice.count
        while not app.job(job_id).is_terminal:
            app.store.notice.wait(seen, timeout=0.02)

    assert app.job(job_id).state == "failed"
