"""Reading: jobs, tasks and traces as views."""

from dataclasses import replace
from datetime import UTC, datetime

from controlplane.domain.identity import Caller
from controlplane.domain.job_state import Parked, Stop
from controlplane.errors import InvalidRequest, NotFound
from controlplane.handlers import asking
from controlplane.handlers.apply import load, spec_of, usage_of
from controlplane.handlers.permits import require
from controlplane.handlers.retuning import budget_of
from controlplane.handlers.turns import Turns
from controlplane.ports import Desk, JobFilter, JobRow, ReceiptRow, TaskRow, Transaction
from controlplane.views import (
    JobView,
    LeaseView,
    QuestionView,
    ReceiptView,
    StopView,
    TaskView,
    WaitReason,
)
from rlm_worker.contracts import JobResult, TraceRecord

_PARKED: dict[WaitReason, str] = {
    "rate_limited": "a rate limit to pass",
    "asked": "an answer",
    "scheduled": "its time to come",
    "budget": "a higher limit",
}


def resolve(desk: Desk, name: str, *, caller: Caller) -> str:
    """Whole job id for an id or the beginning of one that fits a single job."""
    with desk.store.read() as tx:
        found = tx.jobs.with_prefix(name, scope=caller.scope, limit=6) if name else []
    if name in found or len(found) == 1:
        return name if name in found else found[0]
    if not found:
        raise NotFound(f"there is no job {name!r}: `custody jobs` lists those that are")
    raise InvalidRequest(f"{name!r} fits several jobs, name one of: {', '.join(found)}")


def job(desk: Desk, job_id: str, *, caller: Caller) -> JobView:
    with desk.store.read() as tx:
        row, _ = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "job.read", tenant_id=row.state.tenant_id, job_id=job_id)
        view = replace(job_view(tx, row, Turns(tx, desk.rules)), forks=_forks(tx, row))
    side = desk.side.of(job_id)
    if side is None or view.is_terminal:
        return view
    # The database is held up; the worker has the order.
    waiting = StopView(order=side.order, requested_at=_at(side.at_ms), by=side.by)
    return replace(view, desired=side.order, stop=view.stop or waiting)


def _forks(tx: Transaction, row: JobRow) -> tuple[str, ...]:
    """Jobs that share this one's past, as its task's events tell."""
    events = tx.history.events(row.state.task_id)
    told = (event.body for event in events if event.kind == "job_forked")
    return tuple(str(body["fork_job_id"]) for body in told if body["job_id"] == row.state.job_id)


def questions(desk: Desk, job_id: str, *, caller: Caller) -> list[QuestionView]:
    """What a job wants to know of a person, oldest first."""
    return [
        QuestionView(
            job_id=job_id,
            question=asked.question,
            text=asked.text,
            schema=asked.schema,
            asked_at=_at(asked.asked_ms),
            until=None if asked.until_ms is None else _at(asked.until_ms),
            is_answered=asked.is_answered,
        )
        for asked in asking.questions(desk, job_id, caller=caller)
    ]


def jobs(
    desk: Desk, *, caller: Caller, limit: int, state: str | None = None, before: str | None = None
) -> list[JobView]:
    """Newest first; `before` is the last job of the page before."""
    with desk.store.read() as tx:
        require(tx, caller, "job.read", tenant_id=caller.scope.tenant_id or "")
        mark = None if before is None else tx.jobs.get(before, scope=caller.scope)
        after = None if mark is None else (mark.created_ms, mark.state.job_id)
        wanted = JobFilter(states=frozenset() if state is None else frozenset({state}))
        found, _ = tx.jobs.search(wanted, scope=caller.scope, limit=limit, after=after)
        turns = Turns(tx, desk.rules)
        return [job_view(tx, row, turns) for row in found]


def trace(desk: Desk, job_id: str, *, caller: Caller, after: int, limit: int) -> list[TraceRecord]:
    """Records from number `after` on."""
    with desk.store.read() as tx:
        row, _ = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "trace.read", tenant_id=row.state.tenant_id, job_id=job_id)
        return tx.traces.read(job_id, after=after, limit=limit)


def tasks(
    desk: Desk, *, caller: Caller, limit: int, before: tuple[int, str] | None
) -> list[tuple[int, TaskView]]:
    """Newest first, without jobs and receipts; each with the millisecond it was made in, for the next page."""
    with desk.store.read() as tx:
        require(tx, caller, "job.read", tenant_id=caller.scope.tenant_id or "")
        found = tx.task_list.page(scope=caller.scope, before=before, limit=limit)
        rows = [(created_ms, tx.tasks.get(task_id, scope=caller.scope)) for created_ms, task_id in found]
        return [(created_ms, _task_view(row)) for created_ms, row in rows if row is not None]


def task(desk: Desk, task_id: str, *, caller: Caller) -> TaskView:
    with desk.store.read() as tx:
        row = tx.tasks.get(task_id, scope=caller.scope)
        if row is None:
            raise NotFound(f"there is no task {task_id!r}: `custody jobs` names the task of each job")
        require(tx, caller, "job.read", tenant_id=row.state.tenant_id)
        return replace(
            _task_view(row),
            job_ids=tuple(tx.jobs.of_task(task_id)),
            receipts=tuple(_receipt_view(task_id, found) for found in tx.history.receipts(task_id)),
        )


def _task_view(row: TaskRow) -> TaskView:
    return TaskView(
        task_id=row.state.task_id,
        tenant_id=row.state.tenant_id,
        goal=row.state.goal,
        status=row.state.status,
        version=row.version,
        created_at=_at(row.created_ms),
        updated_at=_at(row.updated_ms),
    )


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)


def _receipt_view(task_id: str, row: ReceiptRow) -> ReceiptView:
    return ReceiptView(
        receipt_id=row.receipt_id,
        task_id=task_id,
        seq=row.link.seq,
        kind=row.link.kind,
        at=_at(row.link.at_ms),
        body=dict(row.link.body),
        hash=row.link.hash,
    )


def job_view(tx: Transaction, row: JobRow, turns: Turns) -> JobView:
    lease = tx.leases.get(row.state.job_id)
    result = JobResult.model_validate_json(row.result) if row.result else None
    under_way_ms = min(tx.now_ms, lease.until_ms) - lease.granted_ms if lease else 0
    wall_time_ms = tx.leases.spent_ms(row.state.job_id) + under_way_ms
    return JobView(
        job_id=row.state.job_id,
        task_id=row.state.task_id,
        tenant_id=row.state.tenant_id,
        state=row.state.state,
        desired=row.state.desired,
        generation=row.state.generation,
        attempts=row.state.attempts,
        created_at=_at(row.created_ms),
        updated_at=_at(row.updated_ms),
        spec=spec_of(tx, row.state.job_id),
        usage=result.usage if result else usage_of(row, wall_time_ms=max(0, wall_time_ms)),
        trace_events=row.trace_events,
        trace_head=row.trace_head,
        lease=None
        if lease is None
        else LeaseView(
            worker_id=lease.worker_id,
            fence=lease.fence,
            attempt=lease.attempt,
            expires_at=_at(lease.until_ms),
        ),
        stop=None if row.state.stop is None else _stop_view(row.state.stop),
        result=result,
        receipt_id=row.receipt_id,
        waiting_for=_waiting_for(row, turns),
        not_before=_not_before(row.state.parked),
        budget=budget_of(tx, row) if row.state.budget_version else None,
        budget_version=row.state.budget_version,
        parked_for=None if row.state.parked is None else row.state.parked.reason,
        priority=row.state.priority,
        deadline=None if row.state.deadline_ms is None else _at(row.state.deadline_ms),
    )


def _waiting_for(row: JobRow, turns: Turns) -> str:
    parked = row.state.parked
    if parked is not None:
        return _PARKED[parked.reason] + (f": {parked.detail}" if parked.detail else "")
    return turns.waited_for(row) if row.state.is_ready else ""


def _not_before(parked: Parked | None) -> datetime | None:
    return None if parked is None or parked.not_before_ms is None else _at(parked.not_before_ms)


def _stop_view(stop: Stop) -> StopView:
    return StopView(
        order=stop.order,
        requested_at=_at(stop.requested_ms),
        by=stop.by,
        delivered_at=None if stop.delivered_ms is None else _at(stop.delivered_ms),
        observed_at=None if stop.observed_ms is None else _at(stop.observed_ms),
        verified_at=None if stop.verified_ms is None else _at(stop.verified_ms),
        survivors=stop.survivors,
    )
