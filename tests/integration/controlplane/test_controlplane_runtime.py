"""The embedded runtime: dramatiq threads on a table, watchdogs, drain."""

import subprocess
import sys
import threading
from dataclasses import replace

import dramatiq
import pytest
import sqlalchemy as sa

from controlplane.adapters import processes, schema
from controlplane.adapters.sql_broker import SqlBroker
from controlplane.domain.identity import EVERY_TENANT
from controlplane.runtime import EmbeddedRuntime
from controlplane.watchdogs import lease_reaper
from controlplane.watchdogs.loop import Loop
from rlm_worker.contracts.gateway import AwaitOrdersRequest, LeaseLost
from tests.integration.controlplane.hands import Hands, a_request

STORES = ("sqlite", "postgres")


def worker_that(done: threading.Semaphore, worked: list[str]):
    def make_run(app, worker_id):
        def run(job_id, generation):
            Hands(gateway=app.gateway(), job_id=job_id, generation=generation, worker_id=worker_id).work()
            # A doubled wake-up is refused while the first is at work: only the end of the job counts.
            if app.job(job_id).is_terminal:
                worked.append(job_id)
                done.release()

        return run

    return make_run


@pytest.mark.requirement("CARD-2")
def test_submitted_jobs_are_worked_on(app):
    done, worked = threading.Semaphore(0), []
    before = app.submit(a_request())

    with EmbeddedRuntime(app, make_run=worker_that(done, worked)):
        after = app.submit(a_request())
        while {before.job_id, after.job_id} != set(worked):
            assert done.acquire(timeout=10)

    assert {before.job_id, after.job_id} <= set(worked)
    assert {view.state for view in app.jobs()} == {"succeeded"}


def test_a_runtime_for_one_job_leaves_the_others_alone(app):
    done, worked = threading.Semaphore(0), []
    other, mine = app.submit(a_request()), app.submit(a_request())

    with EmbeddedRuntime(app, only_jobs={mine.job_id}, make_run=worker_that(done, worked)):
        assert done.acquire(timeout=10)

    assert app.job(mine.job_id).state == "succeeded"
    assert app.job(other.job_id).state == "queued"
    with app.store.database.reader.begin() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(schema.queue_message)).scalar() == 0


def test_a_stopping_runtime_hands_its_job_back_without_counting_a_death(app):
    at_work, let_go = threading.Event(), threading.Event()

    def make_run(app, worker_id):
        def run(job_id, generation):
            hands = Hands(gateway=app.gateway(), job_id=job_id, generation=generation, worker_id=worker_id)
            hands.claim()
            at_work.set()
            request = AwaitOrdersRequest(job_id=job_id, fence=hands.fence, timeout_ms=30_000)
            with pytest.raises(LeaseLost):
                hands.gateway.await_orders(request)
            let_go.set()

        return run

    job_id = app.submit(a_request()).job_id
    runtime = EmbeddedRuntime(app, make_run=make_run)
    runtime.start()
    runtime.start()
    assert at_work.wait(10)
    runtime.stop(timeout=10)
    runtime.stop()

    assert let_go.is_set()
    view = app.job(job_id)
    assert (view.state, view.generation, view.lease) == ("queued", 2, None)
    with app.store.read() as tx:
        assert tx.jobs.get(job_id, scope=EVERY_TENANT).state.losses == 0


def test_a_job_whose_worker_process_is_gone_is_taken_back_before_its_lease_ends(app, hands):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mine = processes.worker_id().rsplit("/", 2)[0]
    name = f"{mine}/{child.pid}/{processes._start_time(child.pid)}"
    worker = replace(hands(), worker_id=name)
    worker.claim()

    assert lease_reaper.run_once(app.desk) == 0
    assert not processes.is_gone(processes.worker_id())
    child.kill()
    child.wait()
    assert lease_reaper.run_once(app.desk) == 1
    assert app.job(worker.job_id).state == "queued"


def test_a_worker_of_another_place_is_never_declared_gone():
    assert not processes.is_gone("other-host:pid:[1]/boot/1/1")
    assert not processes.is_gone("whatever")


def test_resume_takes_a_job_from_a_process_that_is_gone(app, hands):
    mine = processes.worker_id().rsplit("/", 2)[0]
    worker = replace(hands(), worker_id=f"{mine}/4194304/1")
    worker.claim()

    assert app.resume(worker.job_id).state == "queued"


def test_a_loop_outlives_its_failures_and_may_be_stopped_twice():
    turns = threading.Semaphore(0)

    def fail():
        turns.release()
        raise RuntimeError("on purpose")

    loop = Loop("test", fail, interval=0.001)
    loop.start()
    loop.start()
    assert all(turns.acquire(timeout=5) for _ in range(3))
    loop.stop()
    loop.stop()


@pytest.fixture
def broker(app):
    opened = SqlBroker(app.store.place, visibility_ms=60_000)
    yield opened
    opened.close()


def test_a_message_is_delivered_once_and_a_stale_delivery_cannot_remove_it(app, broker):
    taken = []
    actor = dramatiq.actor(taken.append, broker=broker, actor_name="take", queue_name="q")
    actor.send("hello")
    first, second = broker.consume("q", timeout=1), broker.consume("q", timeout=1)
    stale = next(first)
    assert stale.args == ("hello",)
    assert next(second) is None

    with broker.engine.begin() as connection:
        connection.execute(sa.update(schema.queue_message).values(hidden_until_ms=0))
    again = next(second)
    first.ack(stale)

    with broker.reader.begin() as connection:
        assert connection.execute(sa.select(schema.queue_message.c.deliveries)).scalars().all() == [2]
    second.ack(again)
    with broker.reader.begin() as connection:
        assert connection.execute(sa.select(schema.queue_message.c.deliveries)).scalars().all() == []


def test_a_consumer_takes_no_more_than_it_may_prefetch(broker):
    actor = dramatiq.actor(print, broker=broker, actor_name="take", queue_name="q")
    for number in range(3):
        actor.send(number)
    consumer = broker.consume("q", prefetch=2, timeout=1)

    held = [next(consumer), next(consumer)]
    assert next(consumer) is None
    consumer.requeue(held[:1])
    assert next(consumer).args == (0,)
