"""Rebuilding: what the rows of a task and its jobs must be, as its events tell it; compared always, repaired by order."""

from dataclasses import dataclass, replace
from functools import reduce
from typing import get_args

from controlplane.domain import receipts, task
from controlplane.domain.events import from_json
from controlplane.domain.identity import EVERY_TENANT, Caller
from controlplane.domain.receipts import GENESIS, Link
from controlplane.domain.task import TaskState
from controlplane.domain.task_events import TaskEvent, TaskRebuilt
from controlplane.errors import NotFound, Tampered
from controlplane.handlers.apply import apply_task
from controlplane.handlers.permits import require
from controlplane.handlers.retrying import retried
from controlplane.handlers.verify import replayed
from controlplane.ports import Desk, JobRow, TaskRow, Transaction
from rlm_worker.contracts import digest

_TASK_EVENTS = get_args(TaskEvent)


@dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """How rows differed from what events tell: `job X: generation`; nothing, when they did not."""

    differences: tuple[str, ...]
    is_repaired: bool


@retried
def rebuild(desk: Desk, task_id: str, *, caller: Caller, repairs: bool = False) -> Rebuilt:
    """Fold every event of a task from zero and compare. Tampered when the events themselves do not hold: they are the truth."""
    with desk.store.write() as tx:
        rows = [tx.jobs.get(job_id, scope=EVERY_TENANT) for job_id in sorted(tx.jobs.of_task(task_id))]
        jobs = [row for row in rows if row is not None]
        row = tx.tasks.get(task_id, scope=caller.scope)
        if row is None:
            raise NotFound(f"there is no task {task_id!r}: `custody jobs` names the task of each job")
        # Whoever may give orders to the whole installation; the rows are not one tenant's matter.
        require(tx, caller, "tenant.manage" if repairs else "job.read", tenant_id=row.state.tenant_id)
        told, told_jobs = _told(tx, row, jobs)
        differences = [*_differences("task", row, told)]
        for found, meant in zip(jobs, told_jobs, strict=True):
            differences += _differences(f"job {found.state.job_id}", found, meant)
        if repairs and differences:
            _repair(tx, desk, (row, told), told_jobs, event=_event(caller, differences))
    return Rebuilt(differences=tuple(differences), is_repaired=bool(repairs and differences))


def _event(caller: Caller, differences: list[str]) -> TaskRebuilt:
    return TaskRebuilt(by=caller.name, differences=tuple(differences))


def _told(tx: Transaction, row: TaskRow, jobs: list[JobRow]) -> tuple[TaskRow, list[JobRow]]:
    """The rows as the chains tell them."""
    task_id = row.state.task_id
    events = tx.history.events(task_id)
    proofs = [proof.link for proof in tx.history.receipts(task_id)]
    _check_whole(events, stream="event", length=row.version)
    _check_whole(proofs, stream="receipt", length=row.receipts)
    told = replace(
        row,
        state=folded(events),
        version=len(events),
        event_head=events[-1].hash if events else GENESIS,
        receipts=len(proofs),
        receipt_head=proofs[-1].hash if proofs else GENESIS,
    )
    _check_checkpoint(tx, task_id, events)
    return told, [_told_job(tx, events, found) for found in jobs]


def _check_whole(links: list[Link], *, stream: str, length: int) -> None:
    """The chain holds, and nothing that was counted is missing at its end."""
    receipts.verify(links, stream=stream, length=len(links), head=links[-1].hash if links else GENESIS)
    if len(links) < length:
        raise Tampered(f"{stream}: {length} links were written, the chain holds only up to link {len(links)}")


def folded(events: list[Link]) -> TaskState:
    """State of a task as its events tell it."""
    facts = (from_json(event.body) for event in events)
    return reduce(task.evolve, (fact for fact in facts if isinstance(fact, _TASK_EVENTS)), TaskState())


def _check_checkpoint(tx: Transaction, task_id: str, events: list[Link]) -> None:
    for kept in tx.history.checkpoints(task_id):
        # Its own event says nothing about the state, and names its digest.
        if digest(kept.state) != kept.digest or kept.state != task.snapshot(folded(events[: kept.seq + 1])):
            raise Tampered(f"task {task_id}: its checkpoint at {kept.seq} is not what its events tell")


def _told_job(tx: Transaction, events: list[Link], row: JobRow) -> JobRow:
    count, head = tx.traces.end(row.state.job_id)
    if count < row.trace_events:
        raise Tampered(
            f"trace of {row.state.job_id}: {row.trace_events} events were written, {count} are here"
        )
    return replace(row, state=replayed(events, row.state.job_id), trace_events=count, trace_head=head)


def _differences(name: str, found: TaskRow | JobRow, meant: TaskRow | JobRow) -> list[str]:
    parts = {**vars(found), **vars(found.state)}
    wanted = {**vars(meant), **vars(meant.state)}
    return [f"{name}: {part}" for part in parts if part != "state" and parts[part] != wanted[part]] + (
        [f"{name}: state"] if parts["state"] != wanted["state"] else []
    )


def _repair(
    tx: Transaction,
    desk: Desk,
    rows: tuple[TaskRow, TaskRow],
    jobs: list[JobRow],
    *,
    event: TaskRebuilt,
) -> None:
    """Write what the events tell, and that it was done."""
    row, told = rows
    for job in jobs:
        tx.jobs.save(replace(job, updated_ms=tx.now_ms))
    tx.tasks.save(told, version=row.version)
    apply_task(tx, desk, row=told, events=[event], actor=event.by)
