"""Forking: a new job that shares the past of another up to an iteration, and goes on its own way from there."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from controlplane.domain import job
from controlplane.domain.commands import ForkJob, SteerJob, Timing
from controlplane.domain.identity import Caller
from controlplane.domain.ids import JobId
from controlplane.errors import InvalidRequest
from controlplane.handlers.apply import apply_job, load, spec_of
from controlplane.handlers.permits import require
from controlplane.handlers.retrying import retried
from controlplane.handlers.retuning import budget_of
from controlplane.handlers.submit import enter
from controlplane.ports import Desk, Transaction
from rlm_worker.contracts import Budget, JobSpec, TraceRecord
from rlm_worker.contracts.job import ForkPoint
from rlm_worker.contracts.keeping import Forked
from rlm_worker.contracts.trace import GENESIS, link, link_hash

_PAGE = 500
#: What happened to the source as a whole and not to its cells: the fork has its own.
_NOT_SHARED = frozenset(
    {
        "attempt_started",
        "attempt_ended",
        "sandbox_opened",
        "evidence_sealed",
        "artifacts_collected",
        "budget_exhausted",
        "no_progress",
        "stop_observed",
        "stop_verified",
        "diverged",
        "parked",
        "retuned",
        "forked",
    }
)
_ENDS = frozenset({"cell_finished", "cell_rejected"})


@dataclass
class _Past:
    """What the source did up to the fork, as far as it must be known before it is copied."""

    at: int = 0
    events: int = 0
    head: str = GENESIS
    shared: int = 0
    spent: dict[str, Any] = field(default_factory=dict)


@retried
def fork(
    desk: Desk, job_id: str, *, at: int | None, steer: str, budget: Budget | None, caller: Caller
) -> str:
    """Enter a job that shares the first `at` iterations (all finished ones when None); return its id."""
    with desk.store.write() as tx:
        rows = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "job.fork", tenant_id=rows[0].state.tenant_id, job_id=job_id)
        source = spec_of(tx, rows[0].state.job_id)
        past = _past(tx, job_id, at)
        spec = _spec(desk, source, past, budget=budget or budget_of(tx, rows[0], source))
        require(tx, caller, "job.fork", tenant_id=spec.tenant_id, spec=spec)
        row = enter(tx, desk, spec, timing=Timing(priority=rows[0].state.priority))
        events, head = _copy(tx, spec.job_id, source_id=job_id, past=past)
        tx.jobs.save(replace(row, trace_events=events, trace_head=head))
        if steer:
            rows = load(tx, spec.job_id, scope=caller.scope)
            steer_id = tx.steers.add(spec.job_id, text=steer, by=caller.name)
            told = job.decide(rows[0].state, SteerJob(steer_id=steer_id, text=steer, by=caller.name))
            apply_job(tx, desk, rows=rows, events=told, actor=caller.name)
        rows = load(tx, job_id, scope=caller.scope)
        linked = ForkJob(fork_job_id=JobId(spec.job_id), at=past.at, by=caller.name)
        apply_job(tx, desk, rows=rows, events=job.decide(rows[0].state, linked), actor=caller.name)
    desk.store.announce(spec.job_id)
    return spec.job_id


def _spec(desk: Desk, source: JobSpec, past: _Past, *, budget: Budget) -> JobSpec:
    seed = source.fork.seed_job_id if source.fork else source.job_id
    return source.model_copy(
        update={
            "job_id": desk.new_id("job"),
            "task_id": desk.new_id("task"),
            "step_id": desk.new_id("step"),
            "budget": budget,
            "fork": ForkPoint(job_id=source.job_id, at=past.at, seed_job_id=seed),
        }
    )


def _records(tx: Transaction, job_id: str, *, until: int | None = None) -> Iterator[TraceRecord]:
    after = 0
    while page := tx.traces.read(job_id, after=after, limit=_PAGE):
        for record in page:
            if until is not None and record.seq >= until:
                return
            yield record
        after += len(page)


def _past(tx: Transaction, job_id: str, at: int | None) -> _Past:
    """Where the shared past ends: with the end of iteration `at`, before any SUBMIT."""
    past, last, submits, shared = _Past(), 0, 0, 0
    spent: dict[str, Any] = {"subcalls": 0, "input_tokens": 0, "output_tokens": 0, "cost_usd": Decimal(0)}
    for record in _records(tx, job_id):
        event = record.event
        is_own = not event.get("node")
        iteration = event.get("iteration")
        if record.kind == "submit_accepted" and is_own:
            submits = int(iteration) if isinstance(iteration, int) else 0
            break
        shared += record.kind not in _NOT_SHARED
        _add_spent(spent, event)
        if record.kind in _ENDS and is_own and isinstance(iteration, int):
            last = max(last, iteration)
            if at is None or iteration == at:
                past = _Past(
                    at=iteration, events=record.seq + 1, head=record.hash, shared=shared, spent=dict(spent)
                )
    if past.at == 0 or (at is not None and past.at != at):
        ended = f"; iteration {submits} ended in SUBMIT and cannot be shared" if submits else ""
        wanted = "an iteration" if at is None else f"iteration {at}"
        raise InvalidRequest(
            f"job {job_id} cannot be forked at {wanted}: it has finished iterations 1 to {last}{ended}"
        )
    return past


def _add_spent(spent: dict[str, Any], event: dict[str, Any]) -> None:
    cost = event.get("spend") or event.get("charged")
    if event["kind"] == "subcall_started":
        spent["subcalls"] += 1
    if isinstance(cost, dict):
        spent["input_tokens"] += cost["input_tokens"]
        spent["output_tokens"] += cost["output_tokens"]
        priced = spent["cost_usd"] is not None and cost["cost_usd"] is not None
        spent["cost_usd"] = spent["cost_usd"] + Decimal(cost["cost_usd"]) if priced else None


def _copy(tx: Transaction, job_id: str, *, source_id: str, past: _Past) -> tuple[int, str]:
    """Begin the fork's own chain: whose past it is, then that past, linked anew."""
    first = Forked(
        source_job_id=source_id,
        at=past.at,
        source_events=past.events,
        source_head=past.head,
        inherited=past.shared,
        iterations=past.at,
        **past.spent,
    )
    batch = [link(first, seq=0, at_ms=tx.now_ms, prev=GENESIS)]
    events, head = 1, batch[0].hash
    for record in _records(tx, source_id, until=past.events):
        if record.kind in _NOT_SHARED:
            continue
        hash_ = link_hash(seq=events, at_ms=record.at_ms, event=record.event, prev=head)
        batch.append(record.model_copy(update={"seq": events, "prev": head, "hash": hash_}))
        events, head = events + 1, hash_
        if len(batch) >= _PAGE:
            tx.traces.append(job_id, batch)
            batch = []
    if batch:
        tx.traces.append(job_id, batch)
    return events, head
