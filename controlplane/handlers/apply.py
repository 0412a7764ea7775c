"""Entering decided events: state, event, receipt and checkpoint in the caller's transaction, never one without the others."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import get_args

from controlplane.domain import budget, job, receipts, task
from controlplane.domain.commands import FoldResult
from controlplane.domain.events import Event, JobEvent, to_json
from controlplane.domain.identity import Scope
from controlplane.domain.ids import JobId, StepId
from controlplane.domain.receipts import Link
from controlplane.domain.task_events import CheckpointSaved, TaskEvent
from controlplane.errors import NotFound
from controlplane.ports import Checkpoint, Desk, JobRow, LedgerEntry, ReceiptRow, TaskRow, Transaction
from rlm_worker.contracts import JobResult, JobSpec, JsonObject, Usage, digest
from rlm_worker.contracts.result import AnsweredBy, FailureClass, Status, TraceRef

_TASK_EVENTS = get_args(TaskEvent)


def load(tx: Transaction, job_id: str, *, scope: Scope) -> tuple[JobRow, TaskRow]:
    """A job and its task."""
    row = tx.jobs.get(job_id, scope=scope)
    found = None if row is None else tx.tasks.get(row.state.task_id, scope=scope)
    if row is None or found is None:
        raise NotFound(f"there is no job {job_id!r}: `custody jobs` lists those that are")
    return row, found


def apply_task(
    tx: Transaction, desk: Desk, *, row: TaskRow, events: Sequence[Event], actor: str
) -> tuple[TaskRow, list[ReceiptRow]]:
    """Append events to a task, with a receipt for each act that owes one; return the saved row and the receipts."""
    links, head = _links(row, events, at_ms=tx.now_ms)
    proofs, receipt_head = _receipts(row, links, desk=desk, at_ms=tx.now_ms)
    saved = replace(
        row,
        state=reduce(task.evolve, (event for event in events if isinstance(event, _TASK_EVENTS)), row.state),
        version=row.version + len(links),
        event_head=head,
        receipts=row.receipts + len(proofs),
        receipt_head=receipt_head,
        updated_ms=tx.now_ms,
    )
    if row.version == 0:
        tx.tasks.add(saved)
    else:
        tx.tasks.save(saved, version=row.version)
    tx.history.append_events(saved.state.task_id, links, actor=actor)
    if proofs:
        tx.history.add_receipts(saved.state.task_id, proofs)
    return saved, proofs


def _links(row: TaskRow, events: Sequence[Event], *, at_ms: int) -> tuple[list[Link], str]:
    links: list[Link] = []
    prev = row.event_head
    for seq, event in enumerate(events, start=row.version):
        links.append(
            receipts.link(
                stream="event", seq=seq, kind=event.kind, at_ms=at_ms, body=to_json(event), prev=prev
            )
        )
        prev = links[-1].hash
    return links, prev


def _receipts(row: TaskRow, links: Sequence[Link], *, desk: Desk, at_ms: int) -> tuple[list[ReceiptRow], str]:
    proofs: list[ReceiptRow] = []
    prev = row.receipt_head
    for event in links:
        if event.kind not in receipts.RECEIPTED:
            continue
        body = {**event.body, "event_seq": event.seq, "event_hash": event.hash}
        proof = receipts.link(
            stream="receipt",
            seq=row.receipts + len(proofs),
            kind=event.kind,
            at_ms=at_ms,
            body=body,
            prev=prev,
        )
        proofs.append(ReceiptRow(receipt_id=desk.new_id("rcp"), link=proof))
        prev = proof.hash
    return proofs, prev


def apply_job(
    tx: Transaction, desk: Desk, *, rows: tuple[JobRow, TaskRow], events: Sequence[JobEvent], actor: str
) -> tuple[JobRow, TaskRow]:
    """Enter events of a job that goes on. In a new generation it is ready to be sent, whatever was sent before."""
    row, task_row = rows
    if not events:
        return rows
    state = reduce(job.evolve, events, row.state)
    saved = replace(row, state=state, updated_ms=tx.now_ms)
    if any(event.kind == "job_held" for event in events):
        saved = settled_so_far(tx, saved)
    task_row, _ = apply_task(tx, desk, row=task_row, events=events, actor=actor)
    tx.jobs.save(saved)
    if row.state.is_leased and not state.is_leased:
        outcome = {"parked": "parked", "held": "paused"}.get(state.state, "handed_back")
        tx.leases.drop(state.job_id, outcome=outcome, ended_ms=tx.now_ms)
    return saved, task_row


def end_job(
    tx: Transaction,
    desk: Desk,
    *,
    rows: tuple[JobRow, TaskRow],
    events: Sequence[JobEvent],
    result: JobResult,
    actor: str,
) -> JobRow:
    """End a job: its events, its spend at the tenant, and its result folded into the task with a checkpoint."""
    row, task_row = rows
    state = reduce(job.evolve, events, row.state)
    body = result.model_dump(mode="json")
    fold = FoldResult(
        step_id=StepId(state.step_id),
        job_id=JobId(state.job_id),
        status="quarantined" if state.state == "quarantined" else result.status,
        spec_digest=row.spec_digest,
        result_digest=digest(body),
        trace_events=row.trace_events,
        trace_head=row.trace_head,
    )
    folding = task.decide(task_row.state, fold)
    folded = reduce(task.evolve, folding, task_row.state)
    snapshot = task.snapshot(folded)
    mark = CheckpointSaved(digest=digest(snapshot))
    task_row, proofs = apply_task(tx, desk, row=task_row, events=[*events, *folding, mark], actor=actor)
    checkpoint = Checkpoint(
        seq=task_row.version - 1, state=snapshot, digest=mark.digest, is_terminal=folded.is_terminal
    )
    tx.history.save_checkpoint(folded.task_id, checkpoint)
    tx.leases.drop(state.job_id, outcome=result.status, ended_ms=tx.now_ms)
    ended = replace(
        row,
        state=state,
        account=budget.closed(row.account),
        tenant_hold=None,
        result=result.model_dump_json(),
        receipt_id=next((proof.receipt_id for proof in proofs if proof.link.kind == "result_folded"), ""),
        updated_ms=tx.now_ms,
    )
    settle_tenant(tx, row, spent=ended.account.spent)
    tx.jobs.save(ended)
    return ended


def tenant_budget(tenant_id: str) -> str:
    return f"tenant:{tenant_id}"


def settle_tenant(tx: Transaction, row: JobRow, *, spent: budget.Amounts) -> None:
    """Turn the hold of the whole job into what it used since the last time this was done."""
    if row.tenant_hold is None:
        return
    budget_id = tenant_budget(row.state.tenant_id)
    account = tx.budgets.get(budget_id)
    spent = spent.minus(row.tenant_settled)
    tx.budgets.save(budget_id, budget.settle(account, held=row.tenant_hold, spent=spent))
    entries: list[LedgerEntry] = [
        LedgerEntry(budget_id=budget_id, job_id=row.state.job_id, kind="settle", amount=spent),
        LedgerEntry(budget_id=budget_id, job_id=row.state.job_id, kind="release", amount=row.tenant_hold),
    ]
    for entry in entries:
        tx.budgets.enter(entry)


def result_without_worker(
    tx: Transaction, row: JobRow, *, status: Status, failure_class: FailureClass, message: str
) -> JobResult:
    """The result of a job that ended while nobody worked on it: trace, spend and, when stopped, its last SUBMIT or draft."""
    by: AnsweredBy = "submit"
    answer = _last_of(tx, row.state.job_id, kind="submit_accepted") if status == "stopped" else None
    if answer is None and status == "stopped":
        by, answer = "draft", _last_of(tx, row.state.job_id, kind="draft_recorded")
    return JobResult(
        job_id=row.state.job_id,
        attempt=row.state.attempts,
        status=status,
        failure_class=failure_class,
        structured_output=answer,
        answered_by="nobody" if answer is None else by,
        # A reason comes from a person's terminal, and half a character in it is no text of a result.
        message=message.encode("utf-8", "replace").decode(),
        trace_ref=TraceRef(job_id=row.state.job_id, events=row.trace_events, head=row.trace_head),
        usage=usage_of(row, wall_time_ms=tx.leases.spent_ms(row.state.job_id)),
    )


def _last_of(tx: Transaction, job_id: str, *, kind: str) -> JsonObject | None:
    """The answer so far of the job's own REPL."""
    found = tx.traces.last(job_id, kind=kind)
    if found is None or found.event.get("node"):
        return None
    fields = found.event["fields"]
    return fields if isinstance(fields, dict) else None


def settled_so_far(tx: Transaction, row: JobRow) -> JobRow:
    """A job that waits holds no budget. Calls whose outcome is unknown keep its hold until the next attempt has charged them."""
    if row.tenant_hold is None or row.account.open:
        return row
    settle_tenant(tx, row, spent=row.account.spent)
    return replace(row, tenant_hold=None, tenant_settled=row.account.spent)


def usage_of(row: JobRow, *, wall_time_ms: int) -> Usage:
    """Spend as the control plane counted it; a call that left counts although its answer is not in."""
    account = row.account
    return Usage(
        iterations=account.iterations,
        subcalls=account.used.subcalls,
        host_calls=account.host_calls,
        wall_time_ms=wall_time_ms,
        input_tokens=account.spent.input_tokens,
        output_tokens=account.spent.output_tokens,
        cost_usd=budget.usd(account.spent.cost_nano_usd) if account.is_priced else None,
    )


def spec_of(tx: Transaction, job_id: str) -> JobSpec:
    return JobSpec.model_validate_json(tx.jobs.spec(job_id))
