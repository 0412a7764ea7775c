"""Parked jobs on the real store: nothing is held while they wait, and they come back by time or by command."""

import time
from datetime import UTC, datetime, timedelta

import pytest

from controlplane.domain.budget import NOTHING, Amounts, Limits
from controlplane.handlers import workers
from controlplane.runtime import EmbeddedRuntime
from controlplane.watchdogs import lease_reaper
from controlplane.watchdogs.dispatcher import Dispatcher, Queue
from rlm_worker.actor import Runner
from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import Budget
from rlm_worker.contracts.gateway import ParkRequest
from rlm_worker.contracts.job import PlaybookDriver
from rlm_worker.contracts.trace import AttemptStarted, DraftRecorded, SubmitAccepted
from rlm_worker.job import Parts
from tests.integration.controlplane.hands import Hands, a_request, answered, asked
from tests.scripted_model import Fault, ScriptedModel

STORES = ("sqlite", "postgres")
TENANT = "tenant:local"


def parked_hands(app, *, not_before: datetime | None, **budget) -> Hands:
    """A worker that made one call and then parked its job."""
    request = a_request(budget=Budget(**{"max_subcalls": 10, **budget}))
    hands = Hands(app.gateway(), app.submit(request).job_id)
    hands.claim()
    hands.record(AttemptStarted(attempt=1, worker_id=hands.worker_id), asked(1))
    hands.record(answered(1))
    reason = "asked" if not_before is None else "rate_limited"
    park = ParkRequest(
        job_id=hands.job_id, fence=hands.fence, reason=reason, detail="slow down", not_before=not_before
    )
    assert app.gateway().park(park).parked
    return hands


def account(app):
    with app.store.read() as tx:
        return tx.budgets.get(TENANT)


def later(**delta: float) -> datetime:
    return datetime.now(UTC) + timedelta(**delta)


@pytest.mark.requirement("LESSON-14")
def test_a_parked_job_holds_no_lease_and_no_budget(app):
    with app.store.write() as tx:
        tx.budgets.set_limits(TENANT, Limits(subcalls=10, tokens=1_000))

    hands = parked_hands(app, not_before=later(hours=1), max_tokens=1_000)

    view = app.job(hands.job_id)
    assert (view.state, view.lease) == ("parked", None)
    assert "slow down" in view.waiting_for
    assert view.not_before is not None
    assert account(app).held == NOTHING
    assert account(app).spent == Amounts(1, 80, 10, 0)
    assert app.verify_receipts(view.task_id) > 0


def test_a_job_whose_time_has_come_is_dispatched_and_one_whose_time_has_not_is_not(app):
    due = parked_hands(app, not_before=later(seconds=-1))
    early = parked_hands(app, not_before=later(hours=1))
    asked_for = parked_hands(app, not_before=None)
    sent: list[tuple[str, int]] = []
    workers.register(app.desk, "w", host="h", slots=9)

    Dispatcher(app.desk, Queue(send=lambda wake: sent.append((wake.job_id, wake.generation))), "d").run_once()

    assert sent == [(due.job_id, 2)]
    assert app.job(due.job_id).state == "queued"
    assert app.job(early.job_id).state == app.job(asked_for.job_id).state == "parked"


def test_what_was_paid_before_parking_is_paid_once(app):
    with app.store.write() as tx:
        tx.budgets.set_limits(TENANT, Limits(subcalls=10, tokens=1_000))
    hands = parked_hands(app, not_before=None, max_tokens=1_000)

    app.unpark(hands.job_id, by="tester")
    again = Hands(app.gateway(), hands.job_id, generation=2)
    again.claim()
    assert account(app).held == Amounts(9, 910, 0, 0)
    again.record(AttemptStarted(attempt=2, worker_id="w"), asked(2))
    again.record(answered(2))
    again.settle()

    assert account(app).held == NOTHING
    assert account(app).spent == Amounts(2, 160, 20, 0)
    assert app.verify_trace(hands.job_id) == 6
    assert app.verify_receipts(app.job(hands.job_id).task_id) > 0


def test_a_stop_ends_a_parked_job_with_its_spend(app):
    hands = parked_hands(app, not_before=None)

    view = app.stop(hands.job_id, by="tester")

    assert view.state == "stopped"
    assert view.result is not None
    assert view.result.usage.input_tokens == 80
    assert account(app).held == NOTHING
    assert account(app).spent.input_tokens == 80


def test_the_time_a_job_was_parked_is_not_its_own(app):
    hands = parked_hands(app, not_before=None)

    with app.store.read() as tx:
        before = tx.leases.spent_ms(hands.job_id)
    app.unpark(hands.job_id, by="tester")
    again = Hands(app.gateway(), hands.job_id, generation=2).claim()

    assert again.spent_wall_time_ms == before


def test_a_submit_that_was_recorded_is_not_lost_with_its_worker(app):
    hands = Hands(app.gateway(), app.submit(a_request()).job_id)
    hands.claim()
    hands.record(
        AttemptStarted(attempt=1, worker_id=hands.worker_id),
        DraftRecorded(iteration=1, fields={"answer": "drafted"}),
        SubmitAccepted(iteration=2, fields={"answer": "submitted"}),
    )
    app.stop(hands.job_id, by="tester")
    with app.store.write() as tx:
        tx.leases.extend(hands.job_id, fence=hands.fence, until_ms=tx.now_ms - 1)
    lease_reaper.run_once(app.desk)

    result = app.job(hands.job_id).result
    assert result is not None
    assert (result.status, result.structured_output) == ("stopped", {"answer": "submitted"})
    assert result.answered_by == "submit"


@pytest.mark.requirement("LESSON-14")
def test_a_rate_limited_job_is_dispatched_again_when_its_time_has_come_and_is_not_paid_twice(app):
    book = """# %%
first = predict("n: int -> label: Literal['x']", n=1).label
# %%
SUBMIT(answer=first + predict("n: int -> label: Literal['x']", n=2).label)
"""
    limited = Fault(429, {"error": {"message": "slow"}}, {"Retry-After": "1.5"})

    def make_run(app, worker_id):
        settings = WorkerSettings(park_after_seconds=0.5)
        return Runner(Parts(gateway=app.gateway(), worker_id=worker_id, settings=settings)).run

    with ScriptedModel(lambda request, n: limited if n == 1 else {"label": "x"}) as model:
        driver = PlaybookDriver(name="test", source=book)
        job_id = app.submit(a_request(driver=driver, sub_model=model.url)).job_id
        states = set()
        with EmbeddedRuntime(app, only_jobs={job_id}, make_run=make_run):
            end = time.monotonic() + 60
            while not (view := app.job(job_id)).is_terminal and time.monotonic() < end:
                states.add(view.state)
                time.sleep(0.02)
        asked = model.calls

    assert view.state == "succeeded"
    assert view.result is not None
    assert (view.result.structured_output, asked) == ({"answer": "xx"}, 3)
    assert "parked" in states
    assert view.attempts == 2
    assert view.result.usage.subcalls == 2
    assert account(app).held == NOTHING
    assert account(app).spent.input_tokens == view.result.usage.input_tokens
    assert [r.kind for r in app.receipts(view.task_id)].count("job_parked") == 1
    assert app.verify_receipts(view.task_id) > 0
