"""Runs one job through the real engine and a real sandbox, with a gateway in memory."""

import threading
from pathlib import Path

from rlm_worker.actor import Runner
from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import JobResult, JobSpec, TraceEvent
from rlm_worker.job import EvidenceKeeper, Parts
from tests.memory_gateway import MemoryGateway

QUICK = WorkerSettings(retry_seconds=0.01)


def run_job(
    spec: JobSpec,
    *,
    settings: WorkerSettings = QUICK,
    evidence: EvidenceKeeper | None = None,
    artifacts: Path | None = None,
) -> "Ran":
    """One attempt from claim to settle."""
    gateway = MemoryGateway(spec)
    attempt(gateway, settings=settings, evidence=evidence, artifacts=artifacts)
    return Ran(gateway)


def attempt(
    gateway: MemoryGateway,
    *,
    settings: WorkerSettings = QUICK,
    evidence: EvidenceKeeper | None = None,
    artifacts: Path | None = None,
) -> None:
    parts = Parts(
        gateway=gateway, worker_id="test-worker", settings=settings, evidence=evidence, artifacts=artifacts
    )
    Runner(parts).run(gateway.spec.job_id, 0)


def start(gateway: MemoryGateway, *, settings: WorkerSettings = QUICK) -> threading.Thread:
    """An attempt on a thread of its own, for tests that give orders while it runs."""
    thread = threading.Thread(target=attempt, args=(gateway,), kwargs={"settings": settings}, daemon=True)
    thread.start()
    return thread


class Ran:
    """What a finished job left behind."""

    def __init__(self, gateway: MemoryGateway) -> None:
        assert gateway.result is not None, "the job did not settle"
        self.gateway = gateway
        self.result: JobResult = gateway.result

    @property
    def events(self) -> list[TraceEvent]:
        return [record.typed() for record in self.gateway.records]

    def of(self, kind: str) -> list[TraceEvent]:
        return [event for event in self.events if event.kind == kind]

    @property
    def output(self) -> dict[str, object]:
        assert self.result.structured_output is not None, self.result.message
        return self.result.structured_output
