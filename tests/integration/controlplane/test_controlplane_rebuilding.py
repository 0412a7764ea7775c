"""Rows are what events tell: whatever was commanded, in whatever order, and also after somebody meddled with them."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from controlplane.adapters import schema
from controlplane.bootstrap import App, open_app
from controlplane.config import Settings
from controlplane.domain.identity import EVERY_TENANT, Caller, Scope
from controlplane.errors import ControlPlaneError, Denied, Tampered
from controlplane.handlers.rebuilding import folded
from controlplane.watchdogs import lease_reaper
from rlm_worker.contracts.gateway import ClaimRequest, GatewayRefused, NotClaimed, ParkRequest
from rlm_worker.contracts.trace import AttemptStarted, NoProgress, StopObserved, StopVerified
from tests.integration.controlplane.hands import Hands, a_request

STORES = ("sqlite", "postgres")


class Scene:
    """A task of up to three jobs, and everything that can be done to them."""

    def __init__(self, app: App) -> None:
        self.app = app
        first = app.submit(a_request())
        self.task_id = first.task_id
        self.hands = [Hands(app.gateway(), first.job_id)]

    def do(self, act: str, number: int) -> None:
        hands = self.hands[number % len(self.hands)]
        try:
            getattr(self, act)(hands)
        except (ControlPlaneError, GatewayRefused, AssertionError):
            # What is refused must leave the rows as they were, too.
            return

    def submit(self, _hands: Hands) -> None:
        if len(self.hands) < 3:
            job_id = self.app.submit(a_request(task_id=self.task_id)).job_id
            self.hands.append(Hands(self.app.gateway(), job_id))

    def claim(self, hands: Hands) -> None:
        hands.generation = self.app.job(hands.job_id).generation
        hands.claim()

    def start(self, hands: Hands) -> None:
        hands.record(AttemptStarted(attempt=1, worker_id="w"), NoProgress(iteration=0, detail="\ud800\0"))

    def observe(self, hands: Hands) -> None:
        hands.record(StopObserved(order="stop"))

    def verify(self, hands: Hands) -> None:
        hands.record(StopVerified(kill_ms=1))

    def settle(self, hands: Hands) -> None:
        hands.settle()

    def settle_stopped(self, hands: Hands) -> None:
        hands.settle(status="stopped", failure_class="stopped", structured_output=None, answered_by="nobody")

    def park(self, hands: Hands) -> None:
        until = datetime.now(UTC) + timedelta(hours=1)
        hands.gateway.park(
            ParkRequest(
                job_id=hands.job_id, fence=hands.fence, reason="rate_limited", detail="\0", not_before=until
            )
        )

    def unpark(self, hands: Hands) -> None:
        self.app.unpark(hands.job_id)

    def pause(self, hands: Hands) -> None:
        self.app.stop(hands.job_id, order="pause")

    def stop(self, hands: Hands) -> None:
        self.app.stop(hands.job_id, reason="en\0ugh \ud83d")

    def kill(self, hands: Hands) -> None:
        self.app.stop(hands.job_id, order="kill")

    def resume(self, hands: Hands) -> None:
        self.app.resume(hands.job_id)

    def steer(self, hands: Hands) -> None:
        self.app.steer(hands.job_id, "left")

    def expire(self, hands: Hands) -> None:
        with self.app.store.write() as tx:
            lease = tx.leases.get(hands.job_id)
            assert lease is not None
            tx.leases.extend(hands.job_id, fence=lease.fence, until_ms=tx.now_ms - 1)
        lease_reaper.run_once(self.app.desk)


ACTS = sorted(name for name in vars(Scene) if not name.startswith("_") and name != "do")


def check(scene: Scene) -> None:
    app = scene.app
    found = app.rebuild(scene.task_id)
    assert (found.differences, found.is_repaired) == ((), False)
    app.verify_receipts(scene.task_id)
    with app.store.read() as tx:
        events, newest = tx.history.events(scene.task_id), tx.history.checkpoint(scene.task_id)
        assert [event.seq for event in events] == list(range(len(events)))
        if newest is not None:
            assert newest.state["folded"] == list(folded(events).folded)


@pytest.fixture(scope="module")
def shared_app():
    """One home for every example: a task is a world of its own."""
    with tempfile.TemporaryDirectory() as folder:
        app = open_app(Settings(home=Path(folder)))
        yield app
        app.close()


@pytest.mark.requirement("S1-EVENT-18", "S1-CKPT-3", "S1-CKPT-19")
@hypothesis_settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 2)), max_size=25))
def test_whatever_is_done_the_rows_are_what_the_events_tell(shared_app, acts):
    scene = Scene(shared_app)
    for act, number in [("claim", 0), ("start", 0), *acts]:
        scene.do(act, number)
    check(scene)


@pytest.mark.requirement("S1-EVENT-17")
def test_a_stopped_job_cancels_its_task_and_folding_says_so(app):
    scene = Scene(app)
    for act in ("submit", "claim", "start", "stop", "observe", "verify", "settle_stopped"):
        scene.do(act, 0)

    check(scene)
    assert app.task(scene.task_id).status == "cancelled"
    with app.store.read() as tx:
        assert "task_cancelled" in [event.kind for event in tx.history.events(scene.task_id)]


MEDDLING: dict[str, tuple[Callable[[App], sa.Update], str]] = {
    "job state": (lambda _: sa.update(schema.job).values(state="failed"), "state"),
    "generation": (lambda _: sa.update(schema.job).values(generation=9), "generation"),
    "reason": (lambda _: sa.update(schema.job).values(reason="because"), "reason"),
    "end of the trace": (
        lambda _: sa.update(schema.job).values(trace_events=1, trace_head="0" * 64),
        "trace_head",
    ),
    "task": (lambda _: sa.update(schema.task).values(status="failed", version=2), "version"),
    "receipts": (lambda _: sa.update(schema.task).values(receipts=0), "receipts"),
}


@pytest.mark.parametrize("what", MEDDLING)
def test_rows_that_somebody_changed_are_found_and_repaired_by_order_with_a_receipt(app, what):
    scene = Scene(app)
    scene.do("claim", 0)
    scene.do("start", 0)
    with app.store.read() as tx:
        before = tx.jobs.get(scene.hands[0].job_id, scope=EVERY_TENANT)
    change, named = MEDDLING[what]
    with app.store.database.writer.begin() as connection:
        connection.execute(change(app))

    assert any(said.endswith(f": {named}") for said in app.rebuild(scene.task_id).differences)
    repaired = app.rebuild(scene.task_id, repairs=True)

    assert repaired.is_repaired
    with app.store.read() as tx:
        after = tx.jobs.get(scene.hands[0].job_id, scope=EVERY_TENANT)
    assert replace(after, updated_ms=0) == replace(before, updated_ms=0)
    assert app.receipts(scene.task_id)[-1].kind == "task_rebuilt"
    check(scene)
    scene.do("settle", 0)
    check(scene)


def test_events_that_do_not_hold_are_never_the_ground_of_a_repair(app):
    scene = Scene(app)
    scene.do("claim", 0)
    with app.store.database.writer.begin() as connection:
        connection.execute(sa.delete(schema.event).where(schema.event.c.seq >= 3))
    with pytest.raises(Tampered, match="links were written"):
        app.rebuild(scene.task_id, repairs=True)


def test_only_whoever_looks_after_everything_may_repair(app):
    scene = Scene(app)
    operator = app.acting_as(Caller(name="o", scope=Scope("local"), roles=frozenset({"operator"})))
    assert operator.rebuild(scene.task_id).differences == ()
    with pytest.raises(Denied):
        operator.rebuild(scene.task_id, repairs=True)


def test_a_claim_that_was_refused_by_all_changes_nothing(app):
    scene = Scene(app)
    refused = app.gateway().claim(ClaimRequest(worker_id="w", job_id=scene.hands[0].job_id, generation=7))
    assert isinstance(refused, NotClaimed)
    check(scene)
