"""Recording: a worker's trace grows by whole groups of chained events, under a live lease and within the job's limits."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import InvalidOperation
from typing import Any

from controlplane.crashpoints import crash_here
from controlplane.domain import budget, job
from controlplane.domain.budget import Account
from controlplane.domain.commands import JobCommand, ObserveStop, RejectLateWrite, StartJob, VerifyStop
from controlplane.domain.events import JobEvent
from controlplane.domain.identity import EVERY_TENANT
from controlplane.domain.ids import Fence
from controlplane.domain.lease import guard
from controlplane.errors import FenceStale, InvalidRequest, OverBudget
from controlplane.handlers import orders, switches
from controlplane.handlers.apply import apply_job, load
from controlplane.handlers.retrying import retried
from controlplane.ports import Desk, JobRow, TaskRow, Transaction
from rlm_worker.contracts import TraceRecord
from rlm_worker.contracts.gateway import (
    ReadTraceAnswer,
    ReadTraceRequest,
    RecordAnswer,
    RecordRequest,
)
from rlm_worker.contracts.trace import BrokenChain, check_link

_STOPS = frozenset({"stop_observed", "stop_verified"})
_HOLDS = frozenset({"subcall_started", "model_asked"})


@retried
def record(desk: Desk, request: RecordRequest) -> RecordAnswer:
    """Append records in one transaction: all of them, or none."""
    # Hashing is done before the write lock is taken: it needs nothing of the store.
    _check_chain(request.records)
    stops = any(record.kind in _STOPS for record in request.records)
    if stops:
        # What the worker saw may stand beside the store only: it is entered before its end is.
        orders.enter(desk)
    try:
        with desk.store.write("full" if stops else "normal") as tx:
            answer = _record(tx, desk, request)
            crash_here("record.before_commit")
    except FenceStale:
        reject_late_write(desk, request.job_id, RejectLateWrite(fence=Fence(request.fence), what="record"))
        raise
    if stops:
        desk.store.announce(request.job_id)
    crash_here("record.after_commit")
    return answer


def _check_chain(records: Sequence[TraceRecord]) -> None:
    seq, prev = (records[0].seq, records[0].prev) if records else (0, "")
    for record in records:
        check_link(record, seq=seq, prev=prev)
        seq, prev = seq + 1, record.hash


def _record(tx: Transaction, desk: Desk, request: RecordRequest) -> RecordAnswer:
    row = tx.jobs.get(request.job_id, scope=EVERY_TENANT)
    guard(tx.leases.get(request.job_id), fence=request.fence, now_ms=tx.now_ms)
    assert row is not None
    fresh = _continuing(tx, row, request.records)
    if fresh:
        _refuse_switched(tx, row, fresh)
        row = replace(
            row,
            account=_metered(row.account, fresh),
            trace_events=row.trace_events + len(fresh),
            trace_head=fresh[-1].hash,
            updated_ms=tx.now_ms,
            recorded_ms=tx.now_ms,
        )
        tx.traces.append(request.job_id, fresh)
        _enter_job_events(tx, desk, row=row, fresh=fresh, fence=Fence(request.fence))
    return RecordAnswer(events=row.trace_events, head=row.trace_head)


def _refuse_switched(tx: Transaction, row: JobRow, fresh: Sequence[TraceRecord]) -> None:
    """No call leaves a job that shall die, or goes to a model whose kill switch is engaged."""
    models = {str(record.event.get("model")) for record in fresh if record.kind in _HOLDS}
    if not models:
        return
    if row.state.desired == "kill":
        raise OverBudget(f"job {row.state.job_id} is being killed: {row.state.reason}")
    if switched := switches.refused_model(tx, row, models):
        raise OverBudget(f"job {row.state.job_id} asks a model that may not be used: {switched}")


def _continuing(tx: Transaction, row: JobRow, records: Sequence[TraceRecord]) -> Sequence[TraceRecord]:
    """Records that are not stored yet. A group sent again, because its answer was lost, has none of them."""
    if not records:
        return records
    first = records[0].seq
    if first > row.trace_events:
        raise BrokenChain(row.trace_events, f"expected sequence number {row.trace_events}, found {first}")
    if first < row.trace_events:
        stored = tx.traces.read(row.state.job_id, after=first, limit=len(records))
        for known, sent in zip(stored, records, strict=False):
            if known.hash != sent.hash:
                raise BrokenChain(known.seq, "another event is stored at its place")
        return records[len(stored) :]
    if records[0].prev != row.trace_head:
        raise BrokenChain(first, "its link to the event before it does not match")
    return records


def _metered(account: Account, records: Sequence[TraceRecord]) -> Account:
    try:
        return budget.metered(account, [record.event for record in records])
    except (KeyError, TypeError, ValueError, InvalidOperation) as error:
        raise InvalidRequest(f"a trace event lacks what its budget needs: {error!r}") from error


def _enter_job_events(
    tx: Transaction, desk: Desk, *, row: JobRow, fresh: Sequence[TraceRecord], fence: Fence
) -> None:
    """What the records mean for the job itself: it runs, a stop was seen, a stop is proved."""
    commands: list[JobCommand] = [StartJob(fence=fence)] if row.state.state == "leased" else []
    commands += [
        _stop_command(record.event, fence=fence, at_ms=tx.now_ms) for record in fresh if record.kind in _STOPS
    ]
    tx.jobs.save_recorded(row)
    rows: tuple[JobRow, TaskRow] | None = None
    for command in commands:
        events: list[JobEvent] = job.decide(rows[0].state if rows else row.state, command)
        if events:
            rows = apply_job(
                tx,
                desk,
                rows=rows or load(tx, row.state.job_id, scope=EVERY_TENANT),
                events=events,
                actor=f"fence:{fence}",
            )


def _stop_command(event: dict[str, Any], *, fence: Fence, at_ms: int) -> JobCommand:
    if event["kind"] == "stop_observed":
        return ObserveStop(fence=fence, at_ms=at_ms, delivered_ms=at_ms - int(event.get("waited_ms") or 0))
    return VerifyStop(fence=fence, at_ms=at_ms, survivors=tuple(event["survivors"]))


@retried
def reject_late_write(desk: Desk, job_id: str, command: RejectLateWrite) -> None:
    """Keep a stale write as evidence, apart from the transaction that refused it."""
    with desk.store.write() as tx:
        if tx.jobs.get(job_id, scope=EVERY_TENANT) is None:
            return
        rows = load(tx, job_id, scope=EVERY_TENANT)
        events = job.decide(rows[0].state, command)
        apply_job(tx, desk, rows=rows, events=events, actor=f"fence:{command.fence}")


def read_trace(desk: Desk, request: ReadTraceRequest) -> ReadTraceAnswer:
    """A page of the trace for the holder of the lease, beginning with event number `after`."""
    with desk.store.read() as tx:
        guard(tx.leases.get(request.job_id), fence=request.fence, now_ms=tx.now_ms)
        found = tx.traces.read(request.job_id, after=request.after, limit=request.limit + 1)
    return ReadTraceAnswer.made(records=tuple(found[: request.limit]), more=len(found) > request.limit)
