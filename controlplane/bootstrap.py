"""Settings become an App: what a caller can ask of the control plane. The only module that names every adapter."""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from controlplane import worker_parts
from controlplane.adapters import processes, sqlite
from controlplane.adapters.cold import ColdStorage
from controlplane.adapters.control_file import ControlFile, NoControlFile
from controlplane.adapters.databases import open_database, skew_ms
from controlplane.adapters.evidence import EvidenceRoom
from controlplane.adapters.ids import new_id
from controlplane.adapters.private_files import make_folder
from controlplane.adapters.readings import Convert, Document, OnConverted, TextForm, unheard
from controlplane.adapters.sources.typed import Source
from controlplane.adapters.sql_store import SqlStore
from controlplane.at_home import AtHome
from controlplane.config import Settings
from controlplane.domain.commands import JobRequest, Order
from controlplane.domain.identity import Caller, owner
from controlplane.domain.queueing import parse_model_limits
from controlplane.engine_settings import model_variables
from controlplane.errors import InvalidRequest
from controlplane.gateway import LocalGateway
from controlplane.handlers import (
    asking,
    control,
    cooling,
    forking,
    importing,
    parking,
    queries,
    rebuilding,
    searching,
    submit,
    verify,
    workers,
)
from controlplane.handlers.searching import Search
from controlplane.operations import Operations
from controlplane.ports import Desk, Rules
from controlplane.ports_control import SideOrders, StuckRules
from controlplane.views import JobPage, JobView, QuestionView, ReceiptView, TaskView, WorkerView
from rlm_worker.contracts import Budget, EvidenceRef, JobResult, JobSpec, TraceRecord

if TYPE_CHECKING:
    from rlm_worker.models.settings import ModelSettings

log = logging.getLogger(__name__)


class App(Operations, AtHome):
    """What a caller can ask of the control plane: every command of a person, and the gateway of a worker.

    Whoever opens a home owns it. `acting_as` gives the same App to somebody else, with the rights of that one.
    """

    def __init__(
        self, settings: Settings, *, store: SqlStore, evidence: EvidenceRoom, side: SideOrders
    ) -> None:
        self.settings = settings
        self.caller = owner("operator")
        self.store = store
        self.evidence = evidence
        self.desk = Desk(
            store=store,
            rules=_rules(settings),
            new_id=new_id,
            is_gone=processes.is_gone,
            pid_of=processes.pid_of,
            is_priced=partial(_is_priced, settings),
            side=side,
        )

    def acting_as(self, caller: Caller) -> "App":
        """The same store, seen with the eyes of a caller."""
        app = copy(self)
        app.caller = caller
        return app

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
        return self.job(submit.submit(self.desk, request, caller=self.caller))

    def stop(self, job_id: str, *, order: Order = "stop", by: str = "", reason: str = "") -> JobView:
        """Order a stop. A job that has ended is left as it is: its view tells how it ended."""
        whole = self._whole(job_id)
        control.stop(self.desk, whole, order=order, caller=self._as(by), reason=reason)
        return self.job(whole)

    def steer(self, job_id: str, text: str, *, by: str = "") -> int:
        """Leave an instruction for the next iteration; its number is what the worker acknowledges."""
        return control.steer(self.desk, self._whole(job_id), text=text, caller=self._as(by))

    def resume(self, job_id: str, *, by: str = "") -> JobView:
        whole = self._whole(job_id)
        control.resume(self.desk, whole, caller=self._as(by))
        return self.job(whole)

    def unpark(self, job_id: str, *, by: str = "") -> JobView:
        """Make a parked job ready, whatever it waits for; one that is not parked is left as it is."""
        whole = self._whole(job_id)
        parking.unpark(self.desk, whole, caller=self._as(by))
        return self.job(whole)

    def fork(
        self, job_id: str, *, at: int | None, by: str = "", steer: str = "", budget: Budget | None = None
    ) -> JobView:
        """A new job that shares another's first iterations."""
        caller = self._as(by)
        made = forking.fork(self.desk, self._whole(job_id), at=at, steer=steer, budget=budget, caller=caller)
        return self.job(made)

    def import_job(
        self, spec: JobSpec, result: JobResult, records: Iterable[TraceRecord], *, by: str = ""
    ) -> bool:
        """Enter a job that ended in another home; False when it is here already."""
        return importing.import_job(self.desk, spec, result, records, caller=self._as(by))

    def questions(self, job_id: str) -> list[QuestionView]:
        """What a job wants to know of a person, and does not know yet."""
        return queries.questions(self.desk, self._whole(job_id), caller=self.caller)

    def answer(self, job_id: str, *, question: int | None, value: JsonValue, by: str = "") -> asking.Question:
        """Answer a question; the job goes on with it."""
        return asking.answer(
            self.desk, self._whole(job_id), question=question, value=value, caller=self._as(by)
        )

    def job(self, job_id: str) -> JobView:
        return queries.job(self.desk, self._whole(job_id), caller=self.caller)

    def jobs(self, *, limit: int = 50, state: str | None = None, before: str | None = None) -> list[JobView]:
        return queries.jobs(self.desk, caller=self.caller, limit=limit, state=state, before=before)

    def search(self, wanted: Search, *, limit: int = 50, cursor: str | None = None) -> JobPage:
        """Jobs by what they are and say, page by page."""
        return searching.search(self.desk, wanted, caller=self.caller, limit=limit, cursor=cursor)

    def is_abandoned(self, view: JobView) -> bool:
        """Whether the process that holds a job is provably gone."""
        return view.lease is not None and self.desk.is_gone(view.lease.worker_id)

    def trace(self, job_id: str, *, after: int = 0, limit: int = 1_000) -> list[TraceRecord]:
        return queries.trace(self.desk, job_id, caller=self.caller, after=after, limit=limit)

    def task(self, task_id: str) -> TaskView:
        return queries.task(self.desk, task_id, caller=self.caller)

    def receipts(self, task_id: str) -> tuple[ReceiptView, ...]:
        return self.task(task_id).receipts

    def workers(self, *, limit: int = 200) -> list[WorkerView]:
        """Who works, and who did lately."""
        return workers.workers(self.desk, caller=self.caller, limit=limit)

    def drain_worker(self, worker_id: str, *, undo: bool = False) -> None:
        """Have a worker take nothing new; what it works on goes on."""
        workers.drain(self.desk, worker_id, caller=self.caller, undo=undo)

    def queue_problem(self) -> str:
        """What is wrong with the queue, for whoever asks whether this installation is ready; empty: nothing is."""
        if not self.settings.redis_url:
            return ""
        from rlm_worker.wakeups import problem_of  # noqa: PLC0415

        return problem_of(self.settings.redis_url)

    def verify_trace(self, job_id: str) -> int:
        return verify.verify_trace(self.desk, self._whole(job_id), caller=self.caller)

    def verify_receipts(self, task_id: str) -> int:
        return verify.verify_receipts(self.desk, task_id, caller=self.caller)

    def _as(self, by: str) -> Caller:
        return replace(self.caller, name=by) if by else self.caller

    def rebuild(self, task_id: str, *, repairs: bool = False) -> rebuilding.Rebuilt:
        """Compare the rows of a task with what its events tell, and repair them when that is wanted."""
        return rebuilding.rebuild(self.desk, task_id, caller=self.caller, repairs=repairs)

    def cool(self, *, older_than: timedelta) -> cooling.Cooled:
        """Move old traces and events to cold storage; they come back by themselves when somebody reads them."""
        return cooling.cool(self.desk, older_than=older_than, caller=self.caller)

    def gateway(self) -> LocalGateway:
        return LocalGateway(self.desk)

    def close(self) -> None:
        self.desk.side.close()
        self.store.close()


def _is_priced(settings: Settings, model: str) -> bool:
    from rlm_worker.models import is_priced  # noqa: PLC0415

    return is_priced(model, settings=model_settings(settings))


def model_settings(settings: Settings) -> "ModelSettings":
    """The keys of the environment, and what an operator set."""
    from rlm_worker.models.settings import ModelSettings  # noqa: PLC0415

    try:
        return ModelSettings.from_env({**os.environ, **model_variables(settings)})
    except ValueError as error:
        raise InvalidRequest(str(error)) from error


def _rules(settings: Settings) -> Rules:
    if settings.drain not in ("hand_back", "finish"):
        raise InvalidRequest(f"the setting drain is 'hand_back' or 'finish', not {settings.drain!r}")
    try:
        model_limits = parse_model_limits(settings.model_limits)
    except ValueError as error:
        raise InvalidRequest(f"the setting model_limits: {error}") from error
    return Rules(
        lease_ttl_ms=int(settings.lease_seconds * 1000),
        max_attempts=settings.max_attempts,
        tenant_concurrency=settings.tenant_concurrency,
        default_tenant=settings.tenant,
        resend_after_ms=int(settings.resend_seconds * 1000),
        model_limits=model_limits,
        stuck=StuckRules(
            progress_ms=int(settings.progress_seconds * 1000),
            overdue_ms=int(settings.overdue_seconds * 1000),
            answer_ms=int(settings.answer_seconds * 1000),
            person_ms=int(settings.question_seconds * 1000),
            dispatch_ms=int(settings.dispatch_seconds * 1000),
            attempts=settings.attempts_limit,
            tokens_per_minute=settings.spend_tokens_per_minute,
        ),
        stuck_policy=settings.stuck_policy or "",
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
    # A server needs no way around itself: its rows are locked one by one, and a client that is gone holds none.
    side = NoControlFile() if settings.database_url else ControlFile(settings.home / "control.orders")
    return App(settings, store=_store(settings), evidence=room, side=side)


def _store(settings: Settings) -> SqlStore:
    cold = ColdStorage(settings.cold_url or settings.home / "cold")
    return SqlStore(settings.database_url or settings.database, cold=cold)


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


@dataclass(frozen=True, kw_only=True)
class StoreReport:
    """The database as it is found, without changing it."""

    words: str
    #: What is wrong with it; empty: nothing.
    problem: str = ""
    #: How far its clock is ahead of this host's.
    skew_ms: int = 0


def store_report(settings: Settings) -> StoreReport:
    """Which database is used, and whether this host fits it. Unavailable when a server does not answer."""
    if settings.database_url is None:
        number, is_sound = sqlite.version()
        return StoreReport(
            words=f"SQLite {number}", problem="" if is_sound else "has a known defect in its write-ahead log"
        )
    database = open_database(settings.database_url)
    try:
        words, problem = database.version()
        return StoreReport(words=words, problem=problem, skew_ms=skew_ms(database))
    finally:
        database.close()
