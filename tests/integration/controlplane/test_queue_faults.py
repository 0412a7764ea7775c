"""Redis flushed, killed, restarted and frozen, messages doubled and reordered, processes killed: work waits or goes on."""

import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import redis

from controlplane.bootstrap import App, open_app
from controlplane.runtime import EmbeddedRuntime, WatchdogRuntime, WorkerRuntime
from rlm_worker.contracts.gateway import JOBS_QUEUE
from tests.integration.controlplane.crew import make_run
from tests.integration.controlplane.hands import a_request
from tests.integration.controlplane.invariants import check
from tests.servers import Valkey

STORES = ("postgres",)


@pytest.fixture(scope="module")
def valkey() -> Iterator[Valkey]:
    server = Valkey().start()
    yield server
    server.close()


@pytest.fixture
def redis_app(settings, valkey) -> Iterator[App]:
    client = redis.Redis.from_url(valkey.url)
    client.flushall()
    client.close()
    opened = open_app(replace(settings, redis_url=valkey.url, resend_seconds=0.3))
    yield opened
    opened.close()


def submit(app: App, count: int) -> list[str]:
    return [app.submit(a_request()).job_id for _ in range(count)]


def await_end(app: App, jobs: list[str], *, seconds: float = 60) -> None:
    await_that(lambda: all(app.job(job_id).is_terminal for job_id in jobs), seconds=seconds)


def await_that(holds: Callable[[], bool], *, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)


@pytest.mark.requirement("CARD-3")
def test_jobs_are_worked_on_over_redis(redis_app):
    with EmbeddedRuntime(redis_app, make_run=make_run):
        jobs = submit(redis_app, 5)
        await_end(redis_app, jobs)

    check(redis_app, jobs)


def test_redis_may_be_flushed_at_any_time(redis_app, valkey):
    jobs = submit(redis_app, 12)
    client = redis.Redis.from_url(valkey.url)
    with EmbeddedRuntime(redis_app, make_run=make_run):
        while not all(redis_app.job(job_id).is_terminal for job_id in jobs):
            client.flushall()
            time.sleep(0.05)
    client.close()

    check(redis_app, jobs)


def test_a_dispatcher_goes_on_when_redis_is_killed_and_started_again(redis_app, valkey):
    with EmbeddedRuntime(redis_app, make_run=make_run) as runtime:
        jobs = submit(redis_app, 2)
        await_end(redis_app, jobs)
        valkey.kill()
        try:
            jobs += submit(redis_app, 3)
            await_that(lambda: runtime.problem != "")
            assert "queue does not answer" in redis_app.queue_problem()
            assert {redis_app.job(job_id).state for job_id in jobs[2:]} == {"queued"}
        finally:
            valkey.start()
        await_end(redis_app, jobs)
        await_that(lambda: runtime.problem == "")
        assert redis_app.queue_problem() == ""

    check(redis_app, jobs)


def test_a_frozen_redis_holds_up_nobody_for_long(redis_app, valkey):
    with EmbeddedRuntime(redis_app, make_run=make_run) as runtime:
        await_end(redis_app, submit(redis_app, 1))
        valkey.process.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            jobs = submit(redis_app, 3)
            assert time.monotonic() - began < 2
            await_that(lambda: runtime.problem != "")
        finally:
            valkey.process.send_signal(signal.SIGCONT)
        await_end(redis_app, jobs)

    check(redis_app, jobs)


def test_a_worker_may_stop_while_redis_is_gone(redis_app, valkey):
    runtime = EmbeddedRuntime(redis_app, make_run=make_run)
    runtime.start()
    valkey.kill()
    try:
        began = time.monotonic()
        runtime.stop(timeout=10)
        assert time.monotonic() - began < 10
    finally:
        valkey.start()
    assert redis_app.workers()[0].state == "gone"


def test_doubled_and_reordered_wake_ups_change_nothing(redis_app, valkey):
    jobs = submit(redis_app, 8)
    client, key = redis.Redis.from_url(valkey.url), f"custody:{JOBS_QUEUE}"
    watchdogs = WatchdogRuntime(redis_app)
    worker = WorkerRuntime(redis_app, slots=8, make_run=make_run)
    # On the roll, so that the dispatcher sends; the messages are shuffled before anybody takes them.
    worker._registry().register()
    watchdogs.start()
    try:
        await_that(lambda: client.llen(key) >= len(jobs))
        ids = client.lrange(key, 0, -1) * 3
        random.Random(7).shuffle(ids)
        client.delete(key)
        client.rpush(key, *ids)
        worker.start()
        await_end(redis_app, jobs)
    finally:
        worker.stop()
        watchdogs.stop()
        client.close()

    check(redis_app, jobs)


def test_of_two_dispatchers_and_reapers_in_one_place_nothing_is_doubled(redis_app):
    parts = [WatchdogRuntime(redis_app) for _ in range(2)]
    worker = WorkerRuntime(redis_app, make_run=make_run)
    for part in (*parts, worker):
        part.start()
    jobs = submit(redis_app, 10)
    await_end(redis_app, jobs)
    for part in (*parts, worker):
        part.stop()

    check(redis_app, jobs)
    assert all(redis_app.job(job_id).attempts == 1 for job_id in jobs)


def test_an_idle_worker_asks_redis_a_few_dozen_times_a_second(redis_app, valkey):
    client = redis.Redis.from_url(valkey.url)

    def commands() -> int:
        return int(client.info("stats")["total_commands_processed"])

    with EmbeddedRuntime(redis_app, make_run=make_run):
        time.sleep(0.5)  # the first misses come close together
        before, began = commands(), time.monotonic()
        time.sleep(1.5)
        rate = (commands() - before) / (time.monotonic() - began)
    client.close()

    # Each look is a script of one or two commands.
    assert rate < 150
