"""The control plane alone: no-op jobs from submit to fold, beside bare dramatiq on the same Valkey and DBOS on the same databases."""

import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from bench.home import Home, a_request
from bench.measure import Report, interleaved, median, times
from bench.peers import CannotBeHad, peer
from controlplane.bootstrap import App, open_app
from controlplane.config import Settings
from controlplane.runtime import EmbeddedRuntime, Run
from rlm_worker.contracts import JobResult, Usage
from rlm_worker.contracts.gateway import Claimed, ClaimRequest, RecordRequest, SettleRequest
from rlm_worker.contracts.result import TraceRef
from rlm_worker.contracts.trace import AttemptStarted, link
from tests.servers import Postgres, Valkey

#: At once, for everybody: jobs of ours, threads of a worker of dramatiq, workflows of DBOS.
_THREADS = 8
_BOOK = "# %% look\nprint(1)\n# %% answer\nSUBMIT(answer='seen')\n"


def _make_run(ended: Callable[[], None]) -> Callable[[App, str], Run]:
    """What a worker does with a job when there is nothing to reason about: claim, one event, settle."""

    def make(app: App, worker_id: str) -> Run:
        gateway = app.gateway()

        def run(job_id: str, generation: int) -> None:
            claimed = gateway.claim(ClaimRequest(worker_id=worker_id, job_id=job_id, generation=generation))
            if not isinstance(claimed, Claimed):
                return
            attempt, fence = claimed.lease.attempt, claimed.lease.fence
            event = AttemptStarted(attempt=attempt, worker_id=worker_id)
            record = link(event, seq=claimed.trace_events, at_ms=1, prev=claimed.trace_head)
            gateway.record(RecordRequest(job_id=job_id, fence=fence, records=(record,)))
            result = JobResult(
                job_id=job_id,
                attempt=attempt,
                status="succeeded",
                structured_output={"answer": "x"},
                answered_by="submit",
                usage=Usage(),
                trace_ref=TraceRef(job_id=job_id, events=record.seq + 1, head=record.hash),
            )
            gateway.settle(SettleRequest(job_id=job_id, fence=fence, result=result))
            ended()

        return run

    return make


class _Countdown:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.left = 0

    def ended(self) -> None:
        with self._changed:
            self.left -= 1
            self._changed.notify_all()

    def wait(self) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self.left <= 0, timeout=300):
                raise TimeoutError(f"{self.left} jobs did not end")


@dataclass
class _Ours:
    """One installation in this process."""

    settings: Settings

    def __post_init__(self) -> None:
        self._count = _Countdown()
        self.app = open_app(self.settings)
        self._runtime = EmbeddedRuntime(self.app, make_run=_make_run(self._count.ended))
        self._runtime.start()

    def seconds(self, jobs: int) -> float:
        """From the first submit to the last fold; they are submitted by several threads at once."""
        self._count.left = jobs
        began = time.perf_counter()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: self.app.submit(a_request(playbook=_BOOK)), range(jobs)))
        self._count.wait()
        return time.perf_counter() - began

    def close(self) -> None:
        self._runtime.stop()
        self.app.close()


class _Bare:
    """Dramatiq as it comes, with messages that do nothing."""

    def __init__(self, url: str) -> None:
        self._count = _Countdown()
        self._broker = RedisBroker(url=url, namespace="bare", middleware=[])
        self._actor = dramatiq.actor(self._count.ended, broker=self._broker, actor_name="noop")
        self._worker = dramatiq.Worker(self._broker, worker_threads=_THREADS)
        self._worker.start()

    def seconds(self, jobs: int) -> float:
        self._count.left = jobs
        began = time.perf_counter()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: self._actor.send(), range(jobs)))
        self._count.wait()
        return time.perf_counter() - began

    def close(self) -> None:
        self._worker.stop()
        self._broker.close()


def _dbos(url: str, jobs: int) -> float:
    found = peer("dbos")
    script = Path(__file__).with_name("dbos_peer.py")
    command = [str(found.python), "-P", str(script), url, str(jobs), str(_THREADS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise CannotBeHad(" ".join(done.stderr.split())[-200:])
    return float(done.stdout.split()[-1])


def run(report: Report, *, quick: bool = False) -> None:
    jobs, rounds = (40, 1) if quick else (1_000, 3)
    report.begin(f"{jobs:,} no-op jobs, submitted to folded; {_THREADS} at once")
    valkey, postgres = Valkey().start(), Postgres().start()
    try:
        with tempfile.TemporaryDirectory(prefix="custody-bench-") as folder:
            _throughput(report, Path(folder), valkey=valkey, postgres=postgres, jobs=jobs, rounds=rounds)
    finally:
        valkey.close()
        postgres.close()
    _first_cell(report, rounds=3 if quick else 30)


def _throughput(
    report: Report, folder: Path, *, valkey: Valkey, postgres: Postgres, jobs: int, rounds: int
) -> None:
    def ours(name: str, **fields: object) -> _Ours:
        return _Ours(Settings(home=folder / name, worker_threads=_THREADS, **fields))  # type: ignore[arg-type]

    both = {"database_url": postgres.new_database(), "redis_url": valkey.url}
    kinds: dict[str, _Ours | _Bare] = {
        "dramatiq + Valkey, bare": _Bare(valkey.url),
        "ours, PostgreSQL + Valkey": ours("service", **both),
        "ours, SQLite + Valkey": ours("mixed", redis_url=valkey.url, redis_namespace="mixed"),
        "ours, SQLite": ours("embedded"),
    }
    cases = {name: lambda kind=kind: kind.seconds(jobs) for name, kind in kinds.items()}
    try:
        for kind in kinds.values():
            kind.seconds(_THREADS)
        per_second = {name: jobs / median(taken) for name, taken in interleaved(cases, rounds=rounds).items()}
    finally:
        for kind in kinds.values():
            kind.close()
    for name, url in {
        "DBOS, PostgreSQL": postgres.new_database().replace("+psycopg", ""),
        "DBOS, SQLite": f"sqlite:///{folder / 'dbos.sqlite'}",
    }.items():
        with suppress(_Skipped):
            per_second[name] = _peer(report, name, url, jobs=min(jobs, 200))
    floor = per_second["dramatiq + Valkey, bare"]
    rows = [(name, f"{rate:,.0f}", times(rate / floor)) for name, rate in per_second.items()]
    report.table(("jobs", "per second", "over bare dramatiq"), rows)
    report.at_least(
        "PostgreSQL + Valkey / bare dramatiq", per_second["ours, PostgreSQL + Valkey"] / floor, 0.25
    )
    for place, name in (("PostgreSQL", "ours, PostgreSQL + Valkey"), ("SQLite", "ours, SQLite")):
        if f"DBOS, {place}" in per_second:
            report.at_least(f"ours / DBOS on {place}", per_second[name] / per_second[f"DBOS, {place}"], 3)


class _Skipped(Exception):
    """A peer cannot be had."""


def _peer(report: Report, name: str, url: str, *, jobs: int) -> float:
    try:
        return jobs / _dbos(url, jobs)
    except (CannotBeHad, subprocess.TimeoutExpired) as error:
        report.skip(name, str(error))
        raise _Skipped from error


def _first_cell(report: Report, *, rounds: int) -> None:
    """From submit to the end of the first cell, in a process that has worked before."""
    with Home() as home:
        request = a_request(playbook=_BOOK)
        home.run(request)
        taken = [home.run(request).moment("cell_finished") for _ in range(rounds)]
    report.at_most("submit to first cell, warm, p50", median(taken), 30, unit=" ms")
