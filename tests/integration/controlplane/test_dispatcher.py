"""The dispatcher over a real store and a queue that a test can break: what is sent, to whom, and what happens when sending fails."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from controlplane.adapters import schema, schema_access
from controlplane.bootstrap import open_app
from controlplane.config import Settings
from controlplane.domain.budget import Limits
from controlplane.errors import Denied, InvalidRequest, NotFound, Unavailable
from controlplane.handlers import workers
from controlplane.ports_queue import Wake
from controlplane.runtime import EmbeddedRuntime, trace_of_job
from controlplane.watchdogs import deadline_keeper, worker_roll
from controlplane.watchdogs.dispatcher import Dispatcher, Errand, Queue
from rlm_worker.contracts import Budget
from rlm_worker.contracts.gateway import Claimed, NotClaimed
from tests.integration.controlplane.hands import Hands, a_request

STORES = ("sqlite", "postgres")


class Wire:
    """A queue in a list."""

    def __init__(self):
        self.wakes: list[Wake] = []
        self.broken = ""

    def send(self, wake):
        if self.broken:
            raise Unavailable(self.broken)
        self.wakes.append(wake)

    def depth(self):
        if self.broken:
            raise Unavailable(self.broken)
        return len(self.wakes)

    def drain(self) -> list[str]:
        taken, self.wakes = [wake.job_id for wake in self.wakes], []
        return taken


@pytest.fixture
def wire():
    return Wire()


@pytest.fixture
def dispatch(app, wire):
    """A round of a dispatcher, with two workers of one place each."""
    for name in ("w1", "w2"):
        workers.register(app.desk, name, host="h", slots=1)
    made = Dispatcher(app.desk, Queue(send=wire.send, depth=wire.depth), holder="d@elsewhere")
    return made.run_once


def submit(app, **fields) -> str:
    return app.submit(a_request(**fields)).job_id


def write(app, statement) -> None:
    with app.store.write() as tx:
        tx.backlog._connection.execute(statement)


def later(**delta) -> datetime:
    return datetime.now(UTC) + timedelta(**delta)


def test_never_more_than_twice_the_places_is_in_the_queue(app, wire, dispatch):
    jobs = [submit(app) for _ in range(6)]

    assert dispatch() == 4
    assert dispatch() == 0
    assert Hands(app.gateway(), jobs[0]).claim().outcome == "claimed"
    assert dispatch() == 1
    assert wire.drain() == jobs[:5]


def test_without_a_worker_nothing_is_sent_and_the_job_says_so(app, wire):
    job_id = submit(app)

    assert Dispatcher(app.desk, Queue(send=wire.send), holder="d").run_once() == 0
    assert app.job(job_id).waiting_for == "a worker: none is running"


def test_priority_goes_first_and_then_the_tenant_that_has_least(app, wire, dispatch):
    crowd = [submit(app, tenant_id="crowd") for _ in range(5)]
    urgent = submit(app, tenant_id="crowd", priority=3)
    single = submit(app, tenant_id="single")

    dispatch()

    assert wire.drain() == [urgent, single, *crowd[:2]]


@pytest.mark.requirement("S1-QUEUE-4")
def test_a_lost_wake_up_is_sent_again_and_one_that_is_in_the_queue_is_not(app, wire):
    desk = replace(app.desk, rules=replace(app.desk.rules, resend_after_ms=0))
    workers.register(desk, "w", host="h", slots=5)
    dispatcher = Dispatcher(desk, Queue(send=wire.send, depth=wire.depth), holder="d")
    job_id = submit(app)

    assert dispatcher.run_once() == 1
    assert dispatcher.run_once() == 0
    assert wire.drain() == [job_id]
    assert dispatcher.run_once() == 1
    assert wire.drain() == [job_id]


def test_a_queue_that_does_not_answer_loses_nothing_and_is_said_to(app, wire, monkeypatch):
    workers.register(app.desk, "w", host="h", slots=5)
    dispatcher = Dispatcher(app.desk, Queue(send=wire.send, depth=wire.depth), holder="d")
    monkeypatch.setattr("controlplane.watchdogs.dispatcher._PAUSE_SECONDS", 0)
    job_id = submit(app)
    wire.broken = "nobody there"

    assert dispatcher.run_once() == dispatcher.run_once() == 0
    assert dispatcher.problem == "nobody there"
    wire.broken = ""
    assert dispatcher.run_once() == 1
    assert dispatcher.problem == ""
    assert wire.drain() == [job_id]


def test_one_of_two_dispatchers_decides_and_the_other_takes_over(app, wire):
    workers.register(app.desk, "w", host="h", slots=1)
    first, second = (
        Dispatcher(app.desk, Queue(send=wire.send), holder=f"{name}@elsewhere")
        for name in ("first", "second")
    )
    jobs = [submit(app) for _ in range(2)]

    assert first.run_once() == 2
    assert second.run_once() == 0
    submit(app)
    first.stop()
    second._ask_again = 0
    assert Hands(app.gateway(), jobs[0]).claim().outcome == "claimed"
    assert second.run_once() == 1


def test_the_duty_of_a_process_that_is_gone_is_taken_at_once(app, wire):
    workers.register(app.desk, "w", host="h", slots=1)
    desk = replace(app.desk, is_gone=lambda name: name == "gone")
    submit(app)
    with app.store.write() as tx:
        assert tx.duties.take("dispatcher", holder="x@gone", ttl_ms=60_000)

    assert Dispatcher(desk, Queue(send=wire.send), holder="d@here").run_once() == 1


def test_a_tenant_at_its_limit_waits_and_says_so(app, wire, dispatch):
    write(app, sa.insert(schema_access.tenant).values(tenant_id="local", name="", max_jobs=1, created_ms=1))
    first, second = submit(app), submit(app)

    dispatch()
    assert wire.drain() == [first]
    assert app.job(second).waiting_for == ""
    worker = Hands(app.gateway(), first)
    worker.claim()
    assert app.job(second).waiting_for == "tenant local has 1 jobs at work"
    refused = Hands(app.gateway(), second).claim()
    assert isinstance(refused, NotClaimed)
    assert refused.reason == "at_capacity"
    worker.settle()
    dispatch()
    assert wire.drain() == [second]


def test_a_model_at_its_limit_holds_up_its_own_jobs_alone(settings, wire):
    app = open_app(replace(settings, model_limits="http://127.0.0.1:9/*=1"))
    workers.register(app.desk, "w", host="h", slots=9)
    first, second = submit(app), submit(app)
    other = submit(app, sub_model="http://127.0.0.1:8/v1#other")

    Dispatcher(app.desk, Queue(send=wire.send), holder="d").run_once()

    assert sorted(wire.drain()) == sorted([first, other])
    Hands(app.gateway(), first).claim()
    assert app.job(second).waiting_for == "model http://127.0.0.1:9/* has 1 jobs at work"
    app.close()


@pytest.mark.parametrize("kind", ["all", "tenant", "task", "job", "model"])
def test_what_a_kill_switch_covers_is_not_sent_until_it_is_released(app, wire, dispatch, kind):
    job_id, other = submit(app), submit(app, tenant_id="other", sub_model="http://127.0.0.1:8/v1#other")
    view = app.job(job_id)
    scope = {
        "all": "", "tenant": "local", "task": view.task_id, "job": job_id, "model": "http://127.0.0.1:9/v1#nobody",
    }[kind]  # fmt: skip
    order = {"scope_kind": kind, "scope_id": scope, "tenant_id": "", "action": "stop", "reason": "drill"}
    write(app, sa.insert(schema.control_order).values(**order, by="me", at_ms=1))

    dispatch()
    assert wire.drain() == ([] if kind == "all" else [other])
    assert "a kill switch on" in app.job(job_id).waiting_for
    assert "drill" in app.job(job_id).waiting_for
    write(app, sa.update(schema.control_order).values(released_ms=2))
    dispatch()
    assert job_id in wire.drain()


def test_a_job_without_a_budget_does_not_take_the_place_of_others(app, wire):
    desk = replace(app.desk, rules=replace(app.desk.rules, resend_after_ms=60_000))
    workers.register(desk, "w", host="h", slots=1)
    with app.store.write() as tx:
        tx.budgets.set_limits("tenant:local", Limits(subcalls=15))
    dispatcher = Dispatcher(desk, Queue(send=wire.send, depth=wire.depth), holder="d")
    poor = [submit(app, budget=Budget(max_subcalls=10)) for _ in range(4)]
    Hands(app.gateway(), poor[0]).claim()
    dispatcher.run_once()
    for job_id in wire.drain():
        Hands(app.gateway(), job_id).claim()

    rich = submit(app, tenant_id="rich")
    dispatcher.run_once()

    assert rich in wire.drain()
    assert "would pass its limit" in app.job(poor[1]).waiting_for


def test_a_job_waits_for_its_time(app, wire, dispatch):
    early = submit(app, not_before=later(hours=1))
    view = app.job(early)
    assert (view.state, view.parked_for) == ("parked", "scheduled")
    assert view.waiting_for == "its time to come"
    assert view.not_before is not None
    dispatch()
    assert wire.drain() == []

    write(app, sa.update(schema.job).values(not_before_ms=1))
    dispatch()

    assert wire.drain() == [early]
    assert isinstance(Hands(app.gateway(), early, generation=2).claim(), Claimed)
    app.verify_receipts(view.task_id)


def test_a_job_that_waits_for_its_time_can_be_stopped_and_started_early(app):
    first, second = (submit(app, not_before=later(hours=1)) for _ in range(2))

    assert app.stop(first).state == "stopped"
    assert app.unpark(second).state == "queued"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"deadline": later(hours=-1)}, "has passed"),
        ({"deadline": later(hours=1), "not_before": later(hours=2)}, "has passed before the job may start"),
        ({"deadline": datetime(2030, 1, 1)}, "time zone"),
        ({"priority": 1001}, "out of range"),
        ({"traceparent": "x"}, "W3C trace context"),
    ],
)
def test_a_time_that_makes_no_sense_is_refused(app, fields, says):
    with pytest.raises(InvalidRequest, match=says):
        app.submit(a_request(**fields))


def end_time(app) -> None:
    write(app, sa.update(schema.job).values(deadline_ms=1))


@pytest.mark.parametrize("fields", [{}, {"not_before": later(minutes=30)}])
def test_a_job_that_nobody_took_up_fails_at_its_deadline(app, fields):
    job_id = submit(app, deadline=later(hours=1), **fields)
    assert deadline_keeper.run_once(app.desk) == 0
    end_time(app)

    assert deadline_keeper.run_once(app.desk) == 1
    assert deadline_keeper.run_once(app.desk) == 0

    view = app.job(job_id)
    assert (view.state, view.result.failure_class) == ("failed", "budget_exhausted")
    assert "its deadline passed at 1970-01-01 00:00:00 UTC, before any worker had it" in view.result.message


def test_a_job_that_ended_by_its_deadline_has_whole_chains(app):
    view = app.submit(a_request(deadline=later(milliseconds=100)))

    while not deadline_keeper.run_once(app.desk):
        assert not app.job(view.job_id).is_terminal

    assert app.job(view.job_id).state == "failed"
    app.verify_receipts(view.task_id)
    app.verify_trace(view.job_id)


def test_a_job_at_work_is_stopped_once_at_its_deadline(app):
    worker = Hands(app.gateway(), submit(app, deadline=later(hours=1)))
    worker.claim()
    end_time(app)

    assert deadline_keeper.run_once(app.desk) == 1
    assert deadline_keeper.run_once(app.desk) == 0

    view = app.job(worker.job_id)
    assert (view.state, view.stop.order) == ("stopping", "stop")
    worker.settle(status="stopped", failure_class="stopped")
    assert app.job(worker.job_id).state == "stopped"


def test_nobody_takes_up_a_job_after_its_deadline(app):
    worker = Hands(app.gateway(), submit(app, deadline=later(hours=1)))
    end_time(app)

    assert worker.claim().detail == "its deadline has passed"


def test_priority_and_deadline_are_no_part_of_the_spec_but_of_the_events(app):
    view = app.submit(a_request(priority=4, deadline=later(hours=1)))

    with app.store.read() as tx:
        (submitted,) = [e.body for e in tx.history.events(view.task_id) if e.kind == "job_submitted"]
    assert (submitted["priority"], view.priority) == (4, 4)
    assert view.deadline is not None
    assert "priority" not in view.spec.model_dump()


def test_a_wake_up_carries_the_trace_context_of_the_submitter_or_one_of_its_own(app, wire, dispatch):
    given = f"00-{'a' * 32}-{'b' * 16}-01"
    submit(app, traceparent=given)
    submit(app)

    dispatch()

    assert [wake.traceparent for wake in wire.wakes] == [given, ""]
    made = [trace_of_job(Wake(job_id="j", generation=n)) for n in (1, 2)]
    assert made[0] != made[1]
    assert made[0].split("-")[1] == made[1].split("-")[1]
    app.submit(a_request(traceparent=made[0]))


def test_a_dispatcher_for_some_jobs_sends_them_alone_and_again_only_when_they_stay(app, wire):
    desk = replace(app.desk, rules=replace(app.desk.rules, resend_after_ms=60_000))
    mine = submit(app)
    submit(app)
    errand = Errand(desk, Queue(send=wire.send), frozenset({mine}))

    assert [errand.run_once(), errand.run_once()] == [1, 0]
    assert wire.drain() == [mine]


def test_workers_are_listed_drained_and_found_gone(app, wire):
    workers.register(app.desk, "here", host="h", slots=2, image="i", facts={"python": "3.11"})
    workers.register(app.desk, "gone", host="h", slots=2)
    desk = replace(app.desk, is_gone=lambda name: name == "gone")

    assert worker_roll.run_once(desk) == 1
    assert {view.worker_id: view.state for view in app.workers()} == {"here": "working", "gone": "gone"}
    app.drain_worker("here")
    assert workers.beat(app.desk, "here")
    submit(app)
    assert Dispatcher(app.desk, Queue(send=wire.send), holder="d").run_once() == 0
    app.drain_worker("here", undo=True)
    assert not workers.beat(app.desk, "here")
    with pytest.raises(NotFound, match="register again"):
        workers.beat(app.desk, "gone")
    with pytest.raises(NotFound, match="there is no worker"):
        app.drain_worker("who")
    with pytest.raises(InvalidRequest, match="slots"):
        workers.register(app.desk, "w", host="h", slots=-1)


def test_nobody_drains_workers_for_one_tenant_alone(app):
    from controlplane.domain.identity import Caller, Scope

    workers.register(app.desk, "w", host="h", slots=2)
    operator = Caller(name="o", scope=Scope("local"), roles=frozenset({"operator"}))

    with pytest.raises(Denied):
        app.acting_as(operator).drain_worker("w")


def test_a_worker_that_was_not_seen_for_long_does_not_count(app, wire):
    workers.register(app.desk, "w", host="h", slots=2)
    write(app, sa.update(schema.worker).values(last_seen_ms=1))
    submit(app)

    assert app.workers()[0].state == "silent"
    assert Dispatcher(app.desk, Queue(send=wire.send), holder="d").run_once() == 0
    assert worker_roll.run_once(app.desk) == 1


def test_an_embedded_runtime_is_on_the_roll_while_it_runs(app):
    with EmbeddedRuntime(app, make_run=lambda *_: lambda *_: None) as runtime:
        (view,) = app.workers()
        assert (view.worker_id, view.slots, view.state) == (runtime.worker_id, 2, "working")
        assert {"python", "protocol", "custody", "sandbox"} <= view.facts.keys()

    assert app.workers()[0].state == "gone"


def test_settings_that_cannot_be_are_refused(tmp_path):
    for wrong in ({"drain": "maybe"}, {"model_limits": "x"}):
        with pytest.raises(InvalidRequest, match=next(iter(wrong))):
            open_app(Settings(home=tmp_path, **wrong))


@pytest.mark.slow
def test_choosing_among_100_000_jobs_costs_what_it_costs_among_100(app, wire, dispatch):
    """One tenant's crowd, whose model is at its limit, in front of another's job."""
    import time

    submit(app, tenant_id="crowd")
    with app.store.write() as tx:
        connection = tx.backlog._connection
        row = dict(connection.execute(sa.select(schema.job)).mappings().one())
        copies = [{**row, "job_id": f"copy-{number}", "created_ms": number} for number in range(100_000)]
        connection.execute(sa.insert(schema.job), copies)
    single = submit(app, tenant_id="single")
    dispatch()
    taken = wire.drain()
    assert Counter(taken)[single] == 1
    write(app, sa.update(schema.job).where(schema.job.c.job_id.in_(taken)).values(state="failed"))

    began = time.perf_counter()
    dispatch()
    assert time.perf_counter() - began < 0.05
