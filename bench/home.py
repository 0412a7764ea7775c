"""A control plane with its own worker in a temporary home, as `custody run` has it: SQLite, dramatiq, real sandbox."""

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from controlplane.bootstrap import App, open_app
from controlplane.config import Settings
from controlplane.domain.commands import JobRequest
from controlplane.runtime import EmbeddedRuntime
from controlplane.views import JobView
from rlm_worker.actor import Runner
from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import Budget, TraceRecord
from rlm_worker.contracts.gateway import Gateway
from rlm_worker.contracts.job import ModelDriver, PlaybookDriver
from rlm_worker.contracts.signature import fields_schema
from rlm_worker.job import EvidenceKeeper, Parts

NOBODY = "http://127.0.0.1:9/v1#nobody"


def a_request(
    *, playbook: str = "", model: str = NOBODY, output: str = "answer: str", **fields: Any
) -> JobRequest:
    """A job that a playbook drives, or else the model."""
    driver = PlaybookDriver(name="bench", source=playbook) if playbook else ModelDriver(model=model)
    given: dict[str, Any] = {
        "task": "bench",
        "output_schema": fields_schema(output),
        "budget": Budget(),
        "driver": driver,
        "sub_model": model,
    }
    return JobRequest(**{**given, **fields})


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A job that has ended. Moments are milliseconds of the wall clock, as the trace has them."""

    view: JobView
    trace: list[TraceRecord]
    submitted_ms: float
    seconds: float
    cpu_seconds: float

    def moment(self, kind: str) -> float:
        """Milliseconds from submit to the first event of a kind."""
        return next(record.at_ms for record in self.trace if record.kind == kind) - self.submitted_ms


class Home:
    """One process's worth of Custody. Leaves nothing behind, but for a home that was there before."""

    def __init__(
        self,
        *,
        settings: WorkerSettings | None = None,
        folder: Path | None = None,
        existing: Path | None = None,
        around: Callable[[Gateway], Gateway] = lambda gateway: gateway,
    ) -> None:
        """`around`: what the worker is given in place of the gateway."""
        self._folder = tempfile.TemporaryDirectory(prefix="custody-bench-", dir=folder)
        self._home = existing or Path(self._folder.name)
        self._settings = settings or WorkerSettings()
        self._around = around
        self._ended = threading.Event()
        #: Of the attempt that ended a job: from its wake-up until the worker let go of it.
        self.attempt_seconds = 0.0

    def __enter__(self) -> Self:
        self.app = open_app(Settings(home=self._home))
        self.runtime = EmbeddedRuntime(self.app, make_run=self._runner)
        self.runtime.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.runtime.stop()
        self.app.close()
        self._folder.cleanup()

    def _runner(self, app: App, worker_id: str) -> Callable[[str, int], None]:
        keeper = EvidenceKeeper(seal=app.evidence.seal, changed=app.evidence.changed)
        runner = Runner(
            Parts(
                gateway=self._around(app.gateway()),
                worker_id=worker_id,
                settings=self._settings,
                evidence=keeper,
            )
        )

        def run(job_id: str, generation: int) -> None:
            began = time.perf_counter()
            runner.run(job_id, generation)
            taken = time.perf_counter() - began
            # A wake-up may come twice; the one that was not given the job returns at once.
            if app.job(job_id).is_terminal and not self._ended.is_set():
                self.attempt_seconds = taken
                self._ended.set()

        return run

    def run(self, request: JobRequest, *, evidence: tuple[Path, ...] = (), seconds: float = 120) -> Ran:
        """Stage, submit and wait until the worker has let go of the job."""
        self._ended.clear()
        submitted_ms, began, burned = time.time() * 1000, time.perf_counter(), time.process_time()
        if evidence:
            request = JobRequest(**{**vars(request), "input_artifacts": self.app.stage(evidence)})
        job_id = self.app.submit(request).job_id
        self.wait(job_id, seconds=seconds)
        taken, cpu = time.perf_counter() - began, time.process_time() - burned
        view = self.app.job(job_id)
        trace = self.app.trace(job_id, limit=10_000)
        return Ran(view=view, trace=trace, submitted_ms=submitted_ms, seconds=taken, cpu_seconds=cpu)

    def wait(self, job_id: str, *, seconds: float = 120) -> None:
        """Until the worker has let go of a job that succeeded."""
        if not self._ended.wait(seconds):
            raise TimeoutError(f"job {job_id} did not end within {seconds:g} s")
        view = self.app.job(job_id)
        if view.result is None or view.result.status != "succeeded":
            raise RuntimeError(f"job {job_id} did not succeed: {view.result}")
