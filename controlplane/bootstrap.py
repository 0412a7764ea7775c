"""Settings become an App; an App and a worker become a runtime. The only module that names every adapter."""

import logging
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from pydantic import JsonValue

from controlplane import worker_parts
from controlplane.adapters import processes, sqlite
from controlplane.adapters.evidence import EvidenceRoom
from controlplane.adapters.ids import new_id
from controlplane.adapters.private_files import make_folder
from controlplane.adapters.readings import Convert, Document, OnConverted, TextForm, unheard
from controlplane.adapters.sources.typed import Source
from controlplane.adapters.sql_store import SqlStore
from controlplane.config import Settings
from controlplane.domain.commands import JobRequest, Order
from controlplane.engine_settings import ENGINE, model_variables
from controlplane.errors import InvalidRequest
from controlplane.gateway import LocalGateway
from controlplane.handlers import (
    asking,
    control,
    forking,
    importing,
    leases,
    parking,
    queries,
    submit,
    verify,
)
from controlplane.ports import Desk, Rules
from controlplane.views import JobView, QuestionView, ReceiptView, TaskView
from controlplane.watchdogs import dispatcher, lease_reaper
from controlplane.watchdogs.loop import Loop
from rlm_worker.contracts import Budget, EvidenceRef, JobResult, JobSpec, TraceRecord
from rlm_worker.contracts.gateway import JOBS_QUEUE

if TYPE_CHECKING:
    import dramatiq

    from controlplane.adapters.sql_broker import SqlBroker
    from rlm_worker.config import WorkerSettings
    from rlm_worker.models.settings import ModelSettings

log = logging.getLogger(__name__)

#: Works on one job: claims it, runs it, settles it.
Run = Callable[[str, int], None]
#: Milliseconds after which an idle queue is looked at again for wake-ups of other processes.
_IDLE_MS = 50


class App:
    """What can be asked of the control plane: every command of a person, and the gateway of a worker."""

    def __init__(self, settings: Settings, *, store: SqlStore, evidence: EvidenceRoom) -> None:
        self.settings = settings
        self.store = store
        self.evidence = evidence
        self.desk = Desk(
            store=store,
            rules=_rules(settings),
            new_id=new_id,
            is_gone=processes.is_gone,
            pid_of=processes.pid_of,
            is_priced=partial(_is_priced, settings),
        )

    def stage(
        self,
        sources: Sequence[Path | Source],
        *,
        snapshot: bool = False,
        on_converted: OnConverted = unheard,
    ) -> tuple[EvidenceRef, ...]:
        """Take evidence in; documents that are converted on the way are told one by one."""
        staged = self.evidence.stage(
            sources, snapshot=snapshot, artifacts_of=self._artifacts_of, on_converted=on_converted
        )
        return tuple(piece.ref for piece in staged)

    def _artifacts_of(self, job_id: str) -> dict[str, tuple[Path, str]]:
        result = self.job(job_id).result
        refs = () if result is None else result.artifact_refs
        return {ref.path: (self.settings.artifacts / ref.digest, ref.digest) for ref in refs}

    def submit(self, request: JobRequest) -> JobView:
        return queries.job(self.desk, submit.submit(self.desk, request))

    def stop(self, job_id: str, *, order: Order = "stop", by: str, reason: str = "") -> JobView:
        """Order a stop. A job that has ended is left as it is: its view tells how it ended."""
        whole = queries.resolve(self.desk, job_id)
        control.stop(self.desk, whole, order=order, by=by, reason=reason)
        return queries.job(self.desk, whole)

    def steer(self, job_id: str, text: str, *, by: str) -> int:
        """Leave an instruction for the next iteration; its number is what the worker acknowledges."""
        return control.steer(self.desk, queries.resolve(self.desk, job_id), text=text, by=by)

    def resume(self, job_id: str, *, by: str = "operator") -> JobView:
        whole = queries.resolve(self.desk, job_id)
        control.resume(self.desk, whole, by=by)
        return queries.job(self.desk, whole)

    def unpark(self, job_id: str, *, by: str) -> JobView:
        """Make a parked job ready, whatever it waits for; one that is not parked is left as it is."""
        whole = queries.resolve(self.desk, job_id)
        parking.unpark(self.desk, whole, by=by)
        return queries.job(self.desk, whole)

    def fork(
        self, job_id: str, *, at: int | None, by: str, steer: str = "", budget: Budget | None = None
    ) -> JobView:
        """A new job that shares another's first iterations."""
        whole = queries.resolve(self.desk, job_id)
        made = forking.fork(self.desk, whole, at=at, steer=steer, budget=budget, by=by)
        return queries.job(self.desk, made)

    def import_job(
        self, spec: JobSpec, result: JobResult, records: Iterable[TraceRecord], *, by: str
    ) -> bool:
        """Enter a job that ended in another home; False when it is here already."""
        return importing.import_job(self.desk, spec, result, records, by=by)

    def questions(self, job_id: str) -> list[QuestionView]:
        """What a job wants to know of a person, and does not know yet."""
        return queries.questions(self.desk, queries.resolve(self.desk, job_id))

    def answer(self, job_id: str, *, question: int | None, value: JsonValue, by: str) -> asking.Question:
        """Answer a question; the job goes on with it."""
        return asking.answer(
            self.desk, queries.resolve(self.desk, job_id), question=question, value=value, by=by
        )

    def job(self, job_id: str) -> JobView:
        return queries.job(self.desk, queries.resolve(self.desk, job_id))

    def jobs(self, *, limit: int = 50, state: str | None = None, before: str | None = None) -> list[JobView]:
        return queries.jobs(self.desk, limit=limit, state=state, before=before)

    def is_abandoned(self, view: JobView) -> bool:
        """Whether the process that holds a job is provably gone."""
        return view.lease is not None and self.desk.is_gone(view.lease.worker_id)

    def trace(self, job_id: str, *, after: int = 0, limit: int = 1_000) -> list[TraceRecord]:
        return queries.trace(self.desk, job_id, after=after, limit=limit)

    def task(self, task_id: str) -> TaskView:
        return queries.task(self.desk, task_id)

    def receipts(self, task_id: str) -> tuple[ReceiptView, ...]:
        return queries.task(self.desk, task_id).receipts

    def verify_trace(self, job_id: str) -> int:
        return verify.verify_trace(self.desk, queries.resolve(self.desk, job_id))

    def verify_receipts(self, task_id: str) -> int:
        return verify.verify_receipts(self.desk, task_id)

    def gateway(self) -> LocalGateway:
        return LocalGateway(self.desk)

    def close(self) -> None:
        self.store.close()


def _is_priced(settings: Settings, model: str) -> bool:
    from rlm_worker.models import is_priced  # noqa: PLC0415

    return is_priced(model, settings=_model_settings(settings))


def _model_settings(settings: Settings) -> "ModelSettings":
    """The keys of the environment, and what an operator set."""
    from rlm_worker.models.settings import ModelSettings  # noqa: PLC0415

    try:
        return ModelSettings.from_env({**os.environ, **model_variables(settings)})
    except ValueError as error:
        raise InvalidRequest(str(error)) from error


def _rules(settings: Settings) -> Rules:
    return Rules(
        lease_ttl_ms=int(settings.lease_seconds * 1000),
        max_attempts=settings.max_attempts,
        tenant_concurrency=settings.tenant_concurrency,
        default_tenant=settings.tenant,
        resend_after_ms=int(settings.resend_seconds * 1000),
    )


def open_app(settings: Settings) -> App:
    """Open a home, and make it when it is not there. Starts nothing."""
    try:
        make_folder(settings.home)
    except OSError as error:
        raise InvalidRequest(
            f"the home {str(settings.home)!r} cannot be made: {error.strerror}. Choose another with --home"
        ) from error
    room = EvidenceRoom(settings.home, convert=_converter(settings))
    return App(settings, store=SqlStore(settings.database), evidence=room)


def _converter(settings: Settings) -> Convert | None:
    """How documents become text: in the home's own kind of sandbox. The degraded one is none for hostile documents."""
    backend, runtime = worker_parts.SANDBOXES.get(settings.sandbox, ("namespaces", "runc"))
    if backend == "landlock":
        return None

    def convert(documents: Sequence[Document], into: Path, on_done: Callable[[int], None]) -> list[TextForm]:
        from rlm_worker import conversion  # noqa: PLC0415
        from rlm_worker.contracts.reading import FileFacts  # noqa: PLC0415

        orders = [conversion.Order(source=document.path, how=document.how) for document in documents]
        forms = conversion.convert_all(
            orders,
            into,
            libraries=settings.home / "libraries",
            backend=backend,
            runtime=runtime,
            on_done=on_done,
        )
        return [
            TextForm(
                file=form.file,
                facts=FileFacts(**{**form.facts.model_dump(), "note": form.error or form.facts.note}),
            )
            for form in forms
        ]

    return convert


def sqlite_version() -> tuple[str, bool]:
    """SQLite in use, and whether several processes may write with it without risk."""
    return sqlite.version()


class EmbeddedRuntime:
    """A worker in this process, with the watchdogs it needs. With `only_jobs` it works on these and no others."""

    def __init__(
        self,
        app: App,
        *,
        only_jobs: AbstractSet[str] | None = None,
        make_run: Callable[[App, str], Run] | None = None,
    ) -> None:
        self._app = app
        self._only_jobs = None if only_jobs is None else frozenset(only_jobs)
        self._make_run = make_run or _runner
        self.worker_id = processes.worker_id()
        self._queue = JOBS_QUEUE if only_jobs is None else f"{JOBS_QUEUE}.{secrets.token_hex(8)}"
        self._broker: SqlBroker | None = None
        self._worker: dramatiq.Worker | None = None
        self._loops: list[Loop] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to take up work. A second start does nothing."""
        if self._worker is not None:
            return
        # Whoever only looks at jobs does not pay for the queue and the worker.
        import dramatiq  # noqa: PLC0415

        from controlplane.adapters.sql_broker import SqlBroker  # noqa: PLC0415
        from rlm_worker.actor import declare  # noqa: PLC0415

        self._broker = SqlBroker(self._app.store.path)
        self._broker.drop_stale()
        run = self._make_run(self._app, self.worker_id)

        def take_up(job_id: str, generation: int) -> None:
            # While this process stops, its wake-ups are left to others.
            if self._worker is not None:
                run(job_id, generation)

        actor = declare(self._broker, run=take_up, queue_name=self._queue)
        threads = self._app.settings.worker_threads
        self._worker = dramatiq.Worker(self._broker, worker_threads=threads, worker_timeout=_IDLE_MS)
        # More would sit behind a long job while another worker is idle.
        self._worker.queue_prefetch = threads
        self._worker.start()
        self._watch(lambda job_id, generation: _discard(actor.send(job_id, generation)))

    def _watch(self, send: dispatcher.Send) -> None:
        desk = self._app.desk
        if self._only_jobs is not None:
            lease_reaper.run_once(desk)
            dispatcher.wake(desk, send=send, jobs=self._only_jobs)
        self._loops = [
            Loop(
                "dispatcher",
                lambda: _discard(dispatcher.run_once(desk, send=send, only_jobs=self._only_jobs)),
                interval=dispatcher.INTERVAL,
                notice=self._app.store.notice,
            ),
            Loop(
                "lease_reaper",
                lambda: _discard(lease_reaper.run_once(desk)),
                interval=lease_reaper.INTERVAL,
            ),
        ]
        for loop in self._loops:
            loop.start()

    def stop(self, timeout: float | None = None) -> None:
        """Stop taking work, give back what is not finished, and wait for the threads. A second stop does nothing."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        for loop in self._loops:
            loop.stop()
        leases.hand_back(self._app.desk, worker_id=self.worker_id)
        seconds = self._app.settings.drain_seconds if timeout is None else timeout
        worker.stop(timeout=int(seconds * 1000))
        # For a claim that was under way at the first time.
        leases.hand_back(self._app.desk, worker_id=self.worker_id)
        assert self._broker is not None
        if self._only_jobs is not None:
            self._broker.flush(self._queue)
        self._broker.close()


def _discard(_answer: object) -> None:
    """For callers that have no use for the answer."""


def worker_settings(settings: Settings) -> "WorkerSettings":
    """What an embedded worker is told: everything of the installation that is the engine's."""
    from rlm_worker.config import WorkerSettings  # noqa: PLC0415

    chosen = {name: getattr(settings, name) for name in ENGINE}
    models = _model_settings(settings)
    try:
        return WorkerSettings(models=models, **chosen)
    except ValueError as error:
        raise InvalidRequest(str(error)) from error


def _runner(app: App, worker_id: str) -> Run:
    from rlm_worker.actor import Runner  # noqa: PLC0415
    from rlm_worker.job import EvidenceKeeper, Parts  # noqa: PLC0415

    keeper = EvidenceKeeper(seal=app.evidence.seal, changed=app.evidence.changed)
    parts = Parts(
        gateway=app.gateway(),
        worker_id=worker_id,
        settings=worker_settings(app.settings),
        evidence=keeper,
        artifacts=app.settings.artifacts,
    )
    return Runner(parts).run
