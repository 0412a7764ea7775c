"""Processes of one installation, killed and frozen, over a Redis that is flushed and restarted: every job is done once."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

import pytest
import redis

from controlplane.bootstrap import App
from tests.integration.controlplane.invariants import check
from tests.integration.controlplane.test_queue_faults import await_end, await_that, redis_app, submit, valkey

__all__ = ["redis_app", "valkey"]
STORES = ("sqlite", "postgres")
ROOT = Path(__file__).parents[3]


class Crew:
    """Processes of one installation."""

    def __init__(self, app: App) -> None:
        settings = app.settings
        given = {
            "HOME": settings.home,
            "DATABASE_URL": settings.database_url,
            "REDIS_URL": settings.redis_url,
        }
        given |= {"RESEND_SECONDS": 0.3, "LEASE_SECONDS": 2, "LEASE_MARGIN_SECONDS": 0.5}
        self._env = {f"CUSTODY_{name}": str(value) for name, value in given.items() if value is not None}
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, role: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "tests.integration.controlplane.crew", role]
        started = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **self._env}, stdout=subprocess.PIPE, text=True
        )
        self.processes.append(started)
        assert started.stdout is not None
        assert started.stdout.readline()
        return started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


def test_a_worker_process_drains_at_the_first_signal(redis_app):
    with Crew(redis_app) as crew:
        worker = crew.start("worker")
        await_that(lambda: [view.state for view in redis_app.workers()] == ["working"])

        worker.send_signal(signal.SIGTERM)

        assert worker.wait(timeout=20) == 0
        assert [view.state for view in redis_app.workers()] == ["gone"]


@pytest.mark.slow
@pytest.mark.timeout(360)
@pytest.mark.requirement("S1-QUEUE-2", "S1-QUEUE-4")
def test_a_crew_that_is_killed_frozen_and_flushed_does_every_job_once(redis_app, valkey):
    """Two dispatchers, two reapers, four workers; processes die and freeze, Redis is flushed and restarted."""
    client = redis.Redis.from_url(valkey.url)
    with Crew(redis_app) as crew:
        watchdogs = [crew.start("watchdogs") for _ in range(2)]
        workers = [crew.start("worker") for _ in range(4)]
        jobs = submit(redis_app, 40)
        for step in range(8):
            jobs += submit(redis_app, 5)
            client.flushall()
            victim = workers[step % 4]
            match step:
                case 1 | 5:
                    victim.kill()
                    victim.wait()
                    workers[step % 4] = crew.start("worker")
                case 2:
                    victim.send_signal(signal.SIGSTOP)
                    threading.Timer(4, victim.send_signal, (signal.SIGCONT,)).start()
                case 3:
                    watchdogs[0].kill()
                    watchdogs[0].wait()
                case 6:
                    valkey.kill()
                    valkey.start()
                case _:
                    pass
            time.sleep(0.3)
        await_end(redis_app, jobs, seconds=240)
    client.close()

    check(redis_app, jobs)
