"""The recovery runbook: everything about a job that went wrong on one page, and what an operator can do about it."""

from collections.abc import Iterator
from dataclasses import replace

from controlplane.domain import budget, job, task
from controlplane.domain.budget import Account
from controlplane.domain.commands import CompleteJob, ReopenStep, RetryJob
from controlplane.domain.identity import Caller
from controlplane.domain.ids import JobId, StepId
from controlplane.domain.switches import check_reason
from controlplane.errors import InvalidRequest
from controlplane.handlers import queries
from controlplane.handlers.apply import apply_job, apply_task, end_job, load, spec_of, usage_of
from controlplane.handlers.permits import require
from controlplane.handlers.stuck import view_of
from controlplane.ports import Desk, JobRow, TaskRow, Transaction
from controlplane.schemas import checker
from controlplane.views import CaseView, CheckpointView, PendingCall, at
from rlm_worker.contracts import JobResult, JsonObject, TraceRecord, digest
from rlm_worker.contracts.result import TraceRef

_PAGE = 500
#: Events at the end of a trace among which what is pending, and what was observed, is looked for.
_LOOKED_AT = 2_000
_HOLDS = ("subcall_started", "model_asked")
_OBSERVED = ("subcall_finished", "model_answered", "host_call_finished", "cell_finished", "submit_accepted")
_CHOICES: dict[str, tuple[str, ...]] = {
    "queued": ("stop", "kill"),
    "leased": ("pause", "stop", "kill", "retune"),
    "running": ("pause", "steer", "stop", "kill", "retune"),
    "stopping": ("kill",),
    "held": ("resume", "retune", "stop", "complete"),
    "parked": ("resume", "retune", "stop", "complete"),
    "failed": ("retry", "complete", "fork"),
    "quarantined": ("retry", "complete", "fork"),
    "stopped": ("complete", "fork"),
    "succeeded": ("fork",),
    "partial": ("fork",),
}


def case(desk: Desk, job_id: str, *, caller: Caller) -> CaseView:
    """Checkpoint, step, last event, pending calls with the keys they are recognised by, what was observed, and what can be done."""
    view = queries.job(desk, job_id, caller=caller)
    with desk.store.read() as tx:
        row, task_row = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "trace.read", tenant_id=row.state.tenant_id, job_id=job_id)
        tail = tx.traces.read(job_id, after=max(0, row.trace_events - _LOOKED_AT), limit=_LOOKED_AT)
        found = tx.history.checkpoint(row.state.task_id)
        iterations = [record.event.get("iteration") for record in tail if not record.event.get("node")]
        return CaseView(
            job=view,
            checkpoint=None
            if found is None
            else CheckpointView(seq=found.seq, state=found.state, digest=found.digest),
            step_id=row.state.step_id,
            step_status=task_row.state.step(row.state.step_id).status,
            task_status=task_row.state.status,
            iteration=max((each for each in iterations if isinstance(each, int)), default=0),
            last_event=tail[-1] if tail else None,
            pending=tuple(_pending(row, tail)),
            observed=next((record for record in reversed(tail) if record.kind in _OBSERVED), None),
            findings=tuple(view_of(each) for each in tx.findings.of_job(job_id)),
            choices=_CHOICES[row.state.state],
        )


def _pending(row: JobRow, tail: list[TraceRecord]) -> Iterator[PendingCall]:
    """Calls that left and whose outcome is not recorded. The key is what a repeated call is recognised by."""
    for record in tail:
        event = record.event
        ordinal = event.get("ordinal")
        if record.kind in _HOLDS and isinstance(ordinal, int) and ordinal in row.account.open:
            yield PendingCall(
                ordinal=ordinal,
                kind=record.kind,
                model=str(event.get("model")),
                key=str(event.get("key") or event.get("prompt_digest")),
                fence=row.state.fence,
                asked_at=at(record.at_ms),
                hold=dict(event["hold"]) if isinstance(event["hold"], dict) else {},
            )


def retry(desk: Desk, job_id: str, *, reason: str, caller: Caller) -> None:
    """Try a job anew that failed or was quarantined: from its record, with as many workers as at first."""
    check_reason(reason)
    with desk.store.write() as tx:
        row, task_row = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "job.operate", tenant_id=row.state.tenant_id, job_id=job_id)
        command = RetryJob(by=caller.name, reason=reason, max_attempts=desk.rules.max_attempts)
        events = job.decide(row.state, command)
        _refuse_at_limit(row)
        rows = _reopened(tx, desk, (row, task_row), by=caller.name)
        row = replace(
            rows[0],
            account=_counted_anew(tx, row),
            # What it spent is settled already, calls whose outcome is unknown included.
            tenant_settled=row.account.spent,
            result="",
            receipt_id="",
        )
        apply_job(tx, desk, rows=(row, rows[1]), events=events, actor=caller.name)
        _audit(tx, row, caller=caller, action="job.retry", reason=reason)
    desk.store.announce()


def _refuse_at_limit(row: JobRow) -> None:
    ended = JobResult.model_validate_json(row.result) if row.result else None
    if ended is not None and ended.failure_class == "budget_exhausted":
        raise InvalidRequest(
            f"job {row.state.job_id} ended at a limit, and would again: fork it with a larger budget instead"
        )


def _reopened(
    tx: Transaction, desk: Desk, rows: tuple[JobRow, TaskRow], *, by: str
) -> tuple[JobRow, TaskRow]:
    state = rows[0].state
    command = ReopenStep(step_id=StepId(state.step_id), job_id=JobId(state.job_id))
    events = task.decide(rows[1].state, command)
    task_row, _ = apply_task(tx, desk, row=rows[1], events=events, actor=by)
    return rows[0], task_row


def _counted_anew(tx: Transaction, row: JobRow) -> Account:
    """The account as the trace tells it, with the calls open whose outcome is unknown: the next attempt charges them."""
    account = Account(limits=row.account.limits)
    after, inherited = 0, 0
    while page := tx.traces.read(row.state.job_id, after=after, limit=_PAGE):
        first = page[0]
        if after == 0 and first.kind == "forked":
            inherited = 1 + int(str(first.event["inherited"]))
        account = budget.metered(account, [record.event for record in page if record.seq >= inherited])
        after += len(page)
    return account


def complete(desk: Desk, job_id: str, output: JsonObject, *, reason: str, caller: Caller) -> None:
    """Give the answer by hand: it is checked like any other, and labelled as an operator's."""
    check_reason(reason)
    with desk.store.write() as tx:
        row, task_row = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "job.operate", tenant_id=row.state.tenant_id, job_id=job_id)
        spec = spec_of(tx, job_id)
        error = next(checker(spec.output_schema).iter_errors(output), None)
        if error is not None:
            raise InvalidRequest(f"the answer does not fit the job's schema: {error.message}")
        result = JobResult(
            job_id=job_id,
            attempt=row.state.attempts,
            status="succeeded",
            structured_output=output,
            answered_by="operator",
            message=f"completed by hand by {caller.name}: {reason}",
            trace_ref=TraceRef(job_id=job_id, events=row.trace_events, head=row.trace_head),
            usage=usage_of(row, wall_time_ms=tx.leases.spent_ms(job_id)),
        )
        command = CompleteJob(
            result_digest=digest(result.model_dump(mode="json")), by=caller.name, reason=reason
        )
        events = job.decide(row.state, command)
        rows = (row, task_row)
        if row.state.is_terminal:
            rows = _reopened(tx, desk, rows, by=caller.name)
        end_job(tx, desk, rows=rows, events=events, result=result, actor=caller.name)
        _audit(tx, row, caller=caller, action="job.complete", reason=reason)
    desk.store.announce()


def _audit(tx: Transaction, row: JobRow, *, caller: Caller, action: str, reason: str) -> None:
    tx.controls.audit(
        tenant_id=row.state.tenant_id,
        principal=caller.name,
        action=action,
        target=row.state.job_id,
        reason=reason,
    )


def chosen(desk: Desk, job_id: str, *, action: str, reason: str, caller: Caller) -> None:
    """Keep who chose what, and why, for steps that have no record of their own."""
    check_reason(reason)
    with desk.store.write() as tx:
        row, _ = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "job.operate", tenant_id=row.state.tenant_id, job_id=job_id)
        _audit(tx, row, caller=caller, action=action, reason=reason)
