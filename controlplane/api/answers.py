"""From what handlers give to what callers are answered."""

from collections.abc import Iterable
from datetime import UTC, datetime

from controlplane.api import withholding
from controlplane.api.bodies import (
    AttemptBody,
    JobBody,
    JobFilter,
    JobItem,
    LeaseBody,
    QuestionBody,
    ReceiptBody,
    ResultBody,
    StopBody,
    TaskBody,
    TaskItem,
    TraceItem,
)
from controlplane.api.bodies_files import EvidenceBody, UploadBody
from controlplane.handlers.searching import Search
from controlplane.handlers.uploads import KEPT_MS, ref_of
from controlplane.ports_access import AttemptRow, OwnedRow, UploadRow
from controlplane.views import JobView, QuestionView, ReceiptView, TaskView
from rlm_worker.contracts import TraceRecord
from rlm_worker.contracts.job import ModelDriver


def at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)


def maybe_at(ms: int | None) -> datetime | None:
    return None if ms is None else at(ms)


def ms_of(when: datetime | None) -> int | None:
    return None if when is None else int(when.timestamp() * 1000)


def search(wanted: JobFilter) -> Search:
    return Search(
        states=frozenset(wanted.states),
        task_id=wanted.task_id,
        labels=dict(label.split("=", 1) for label in wanted.labels),
        model=wanted.model,
        words=wanted.words,
        created_after=wanted.created_after,
        created_before=wanted.created_before,
    )


def job_item(view: JobView, *, content: bool) -> JobItem:
    return JobItem(
        job_id=view.job_id,
        task_id=view.task_id,
        tenant_id=view.tenant_id,
        state=view.state,
        desired=view.desired,
        generation=view.generation,
        attempts=view.attempts,
        created_at=view.created_at,
        updated_at=view.updated_at,
        priority=view.priority,
        deadline=view.deadline,
        task=withholding.text(view.spec.task, content=content),
        model=view.spec.driver.model if isinstance(view.spec.driver, ModelDriver) else "",
        sub_model=view.spec.sub_model,
        labels=view.spec.labels,
        usage=view.usage,
        trace_events=view.trace_events,
        waiting_for=withholding.text(view.waiting_for, content=content or view.parked_for is None),
        receipt_id=view.receipt_id,
    )


def job(view: JobView, *, content: bool) -> JobBody:
    lease, stop, result = view.lease, view.stop, view.result
    return JobBody(
        **job_item(view, content=content).__dict__,
        spec=withholding.spec(view.spec, content=content),
        trace_head=view.trace_head,
        lease=None
        if lease is None
        else LeaseBody(worker_id=lease.worker_id, attempt=lease.attempt, expires_at=lease.expires_at),
        stop=None
        if stop is None
        else StopBody(
            order=stop.order,
            requested_at=stop.requested_at,
            observed_at=stop.observed_at,
            verified_at=stop.verified_at,
            survivors=stop.survivors,
        ),
        result=None if result is None else withholding.result(result, content=content),
        forks=view.forks,
        parked_for=view.parked_for,
        not_before=view.not_before,
    )


def result(view: JobView, *, content: bool) -> ResultBody:
    found = None if view.result is None else withholding.result(view.result, content=content)
    return ResultBody(job_id=view.job_id, state=view.state, result=found)


def question(view: QuestionView, *, content: bool) -> QuestionBody:
    return QuestionBody(
        question=view.question,
        text=withholding.text(view.text, content=content),
        answer_schema=view.schema if content else withholding.mark(view.schema),
        asked_at=view.asked_at,
        until=view.until,
        is_answered=view.is_answered,
    )


def trace_item(record: TraceRecord, *, content: bool) -> TraceItem:
    return TraceItem(
        seq=record.seq,
        kind=record.kind,
        at=at(record.at_ms),
        event=withholding.event(record.event, content=content),
        prev=record.prev,
        hash=record.hash,
    )


def receipts(views: Iterable[ReceiptView], *, content: bool) -> tuple[ReceiptBody, ...]:
    return tuple(
        ReceiptBody(
            receipt_id=view.receipt_id,
            task_id=view.task_id,
            seq=view.seq,
            kind=view.kind,
            at=view.at,
            body=withholding.proof(view.body, content=content),
            hash=view.hash,
        )
        for view in views
    )


def task_item(view: TaskView, *, content: bool) -> TaskItem:
    return TaskItem(
        task_id=view.task_id,
        tenant_id=view.tenant_id,
        goal=withholding.text(view.goal, content=content),
        status=view.status,
        version=view.version,
        created_at=view.created_at,
        updated_at=view.updated_at,
    )


def task(view: TaskView, *, content: bool) -> TaskBody:
    return TaskBody(
        **task_item(view, content=content).__dict__,
        job_ids=view.job_ids,
        receipts=receipts(view.receipts, content=content),
    )


def attempt(row: AttemptRow) -> AttemptBody:
    return AttemptBody(
        attempt=row.attempt,
        worker_id=row.worker_id,
        started_at=at(row.granted_ms),
        ended_at=maybe_at(row.ended_ms),
        outcome=row.outcome,
    )


def upload(row: UploadRow) -> UploadBody:
    return UploadBody(
        upload_id=row.upload_id,
        sha256=row.content_digest,
        size_bytes=row.size_bytes,
        received_bytes=row.received_bytes,
        is_complete=row.done_ms is not None,
        expires_at=None if row.done_ms is not None else at(row.at_ms + KEPT_MS),
    )


def evidence(row: OwnedRow) -> EvidenceBody:
    ref = ref_of(row)
    return EvidenceBody(
        digest=row.digest,
        name=ref.name,
        kind=ref.kind,
        files=ref.files,
        size_bytes=ref.size_bytes,
        trust=ref.trust,
        origin=ref.origin,
        created_at=at(row.at_ms),
    )
