"""Verifying: chains of traces, events and receipts, and that each proof still fits what it proves."""

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from typing import Any, get_args

from controlplane.domain import job, receipts
from controlplane.domain.events import JobEvent, from_json
from controlplane.domain.identity import Caller
from controlplane.domain.job_state import JobState
from controlplane.domain.receipts import Link
from controlplane.errors import NotFound, Tampered
from controlplane.handlers.apply import load
from controlplane.handlers.permits import require
from controlplane.ports import Desk, JobRow, Transaction
from rlm_worker.contracts import TraceRecord, digest
from rlm_worker.contracts.trace import GENESIS, BrokenChain, check_link

_JOB_EVENTS = get_args(JobEvent)


def verify_trace(desk: Desk, job_id: str, *, caller: Caller) -> int:
    """Check a job's whole trace and return its length; Tampered names the first event that does not hold."""
    with desk.store.read() as tx:
        row, _ = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "trace.read", tenant_id=row.state.tenant_id, job_id=job_id)
        length, head = _check_chain(tx.traces.checked(job_id), job_id=job_id)
        if (length, head) != (row.trace_events, row.trace_head):
            raise Tampered(
                f"trace of {job_id}: {row.trace_events} events were written, the chain holds only up to event {length}"
            )
        _check_folded(tx, row)
        return length


def _check_chain(records: Iterable[TraceRecord], *, job_id: str) -> tuple[int, str]:
    seq, prev = 0, GENESIS
    for record in records:
        try:
            check_link(record, seq=seq, prev=prev)
        except BrokenChain as error:
            raise Tampered(f"trace of {job_id}, event {error.seq}: {error.reason}") from error
        seq, prev = seq + 1, record.hash
    return seq, prev


def _check_folded(tx: Transaction, row: JobRow) -> None:
    """The receipt of the fold names the same spec, result and end of trace as the job does."""
    if not row.receipt_id:
        return
    found = {proof.receipt_id: proof.link.body for proof in tx.history.receipts(row.state.task_id)}
    proof = found.get(row.receipt_id)
    job_id = row.state.job_id
    if proof is None:
        raise Tampered(f"job {job_id}: its receipt {row.receipt_id} is missing")
    stored: dict[str, Any] = {
        "spec_digest": _text_digest(tx.jobs.spec(job_id)),
        "result_digest": _text_digest(row.result),
        "trace_events": row.trace_events,
        "trace_head": row.trace_head,
    }
    for name, value in stored.items():
        if proof[name] != value:
            raise Tampered(
                f"job {job_id}: its {name.replace('_', ' ')} differs from receipt {row.receipt_id}"
            )


def _text_digest(text: str) -> str:
    try:
        return digest(json.loads(text))
    except ValueError:
        return ""


def verify_receipts(desk: Desk, task_id: str, *, caller: Caller) -> int:
    """Check a task's receipts and events, and what they prove of its jobs; return the number of receipts."""
    with desk.store.read() as tx:
        row = tx.tasks.get(task_id, scope=caller.scope)
        if row is None:
            raise NotFound(f"there is no task {task_id!r}: `custody jobs` names the task of each job")
        require(tx, caller, "job.read", tenant_id=row.state.tenant_id)
        events = tx.history.events(task_id)
        receipts.verify(events, stream="event", length=row.version, head=row.event_head)
        proofs = [proof.link for proof in tx.history.receipts(task_id)]
        receipts.verify(proofs, stream="receipt", length=row.receipts, head=row.receipt_head)
        _check_events(events, proofs)
        for job_id in tx.jobs.of_task(task_id):
            found = tx.jobs.get(job_id, scope=caller.scope)
            assert found is not None
            _check_replay(events, found)
            _check_folded(tx, found)
        return len(proofs)


def _check_events(events: list[Link], proofs: list[Link]) -> None:
    owed = [event.hash for event in events if event.kind in receipts.RECEIPTED]
    given = [proof.body["event_hash"] for proof in proofs]
    if owed != given:
        raise Tampered("the receipts do not stand for the same acts as the events")


def _check_replay(events: list[Link], row: JobRow) -> None:
    told = replayed(events, row.state.job_id)
    if told.stop is not None and row.state.stop is not None and not row.state.stop.by:
        # Rows of earlier releases do not say who ordered the stop.
        told = replace(told, stop=replace(told.stop, by=""))
    if told != row.state:
        raise Tampered(f"job {row.state.job_id}: its row says something else than its events")


def replayed(events: Iterable[Link], job_id: str) -> JobState:
    """State of a job as its events tell it."""
    facts = (from_json(event.body) for event in events if event.body.get("job_id") == job_id)
    return reduce(job.evolve, (fact for fact in facts if isinstance(fact, _JOB_EVENTS)), JobState())
