"""Importing: a job that ran in another home is entered here with its whole trace, as it ended there."""

from collections.abc import Iterable
from dataclasses import replace

from controlplane.domain import job
from controlplane.domain.commands import ImportJob
from controlplane.domain.identity import EVERY_TENANT, Caller
from controlplane.errors import InvalidRequest
from controlplane.handlers.apply import end_job, load
from controlplane.handlers.permits import require
from controlplane.handlers.submit import enter
from controlplane.ports import Desk, JobRow, Transaction
from rlm_worker.contracts import JobResult, JobSpec, TraceRecord, digest
from rlm_worker.contracts.trace import GENESIS, check_link

_PAGE = 500


def import_job(
    desk: Desk, spec: JobSpec, result: JobResult, records: Iterable[TraceRecord], *, caller: Caller
) -> bool:
    """Enter a job that has ended; False when the very same one is here already."""
    with desk.store.write() as tx:
        require(tx, caller, "job.import", tenant_id=spec.tenant_id)
        known = tx.jobs.get(spec.job_id, scope=EVERY_TENANT)
        if known is not None:
            return _same(known, result)
        if tx.tasks.get(spec.task_id, scope=EVERY_TENANT) is not None:
            raise InvalidRequest(
                f"task {spec.task_id} of job {spec.job_id} is here already, and this job is not: it cannot be added to it"
            )
        row = enter(tx, desk, spec)
        events, head = _append(tx, spec.job_id, records)
        if (events, head) != (result.trace_ref.events, result.trace_ref.head):
            raise InvalidRequest(f"the result of job {spec.job_id} does not stand at the end of its trace")
        tx.jobs.save(replace(row, trace_events=events, trace_head=head))
        command = ImportJob(
            status=result.status,
            failure_class=result.failure_class,
            result_digest=digest(result.model_dump(mode="json")),
            by=caller.name,
        )
        rows = load(tx, spec.job_id, scope=caller.scope)
        end_job(
            tx, desk, rows=rows, events=job.decide(rows[0].state, command), result=result, actor=caller.name
        )
    desk.store.announce()
    return True


def _same(known: JobRow, result: JobResult) -> bool:
    if known.trace_head != result.trace_ref.head:
        raise InvalidRequest(
            f"job {known.state.job_id} is here already with another trace: nothing was imported"
        )
    return False


def _append(tx: Transaction, job_id: str, records: Iterable[TraceRecord]) -> tuple[int, str]:
    batch: list[TraceRecord] = []
    events, head = 0, GENESIS
    for record in records:
        check_link(record, seq=events, prev=head)
        batch.append(record)
        events, head = events + 1, record.hash
        if len(batch) >= _PAGE:
            tx.traces.append(job_id, batch)
            batch = []
    if batch:
        tx.traces.append(job_id, batch)
    return events, head
