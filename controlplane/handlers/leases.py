"""Leases: claim, renew, wait for orders, and take a lease from a worker that is gone."""

import time
from dataclasses import replace
from functools import reduce

from controlplane.crashpoints import crash_here
from controlplane.domain import budget, job
from controlplane.domain.commands import ClaimJob, GiveUpJob, HandBack, LoseLease
from controlplane.domain.events import JobLeased
from controlplane.domain.identity import EVERY_TENANT
from controlplane.domain.ids import Fence
from controlplane.domain.job_state import JobState
from controlplane.domain.lease import Lease, extended, guard
from controlplane.domain.stopping import stronger
from controlplane.errors import OverBudget
from controlplane.handlers import orders, switches
from controlplane.handlers.apply import (
    apply_job,
    end_job,
    load,
    result_without_worker,
    spec_of,
    tenant_budget,
)
from controlplane.handlers.retrying import retried
from controlplane.handlers.turns import tenant_concurrency
from controlplane.ports import Desk, JobRow, LedgerEntry, Orders, TaskRow, Transaction
from controlplane.ports_control import SideOrder
from rlm_worker.contracts import JobResult
from rlm_worker.contracts.base import PROTOCOL_VERSION
from rlm_worker.contracts.gateway import (
    AwaitOrdersRequest,
    Claimed,
    ClaimRequest,
    NotClaimed,
    RenewAnswer,
    RenewRequest,
    Retune,
)
from rlm_worker.contracts.gateway import Lease as GrantedLease

#: Why a ready job was refused, as far as people are told.
_SHOWN = ("over_budget", "at_capacity")


@retried
def claim(desk: Desk, request: ClaimRequest) -> Claimed | NotClaimed:
    """Grant a lease under a new fence, or say why not. Everything is checked in the transaction that grants it."""
    orders.enter(desk)
    with desk.store.write() as tx:
        answer = _decided(tx, desk, request)
    if isinstance(answer, Claimed):
        crash_here("claim.after_commit")
    return answer


def _decided(tx: Transaction, desk: Desk, request: ClaimRequest) -> Claimed | NotClaimed:
    row = tx.jobs.get(request.job_id, scope=EVERY_TENANT)
    if refused := _refusal(tx, desk, row=row, request=request):
        return _kept(tx, row, refused)
    # Job, task, budget: everybody takes them in this order, so that two never wait for each other.
    row, task_row = load(tx, request.job_id, scope=EVERY_TENANT)
    if reason := _misfit(tx, row):
        _give_up(tx, desk, row.state.job_id, reason=reason)
        return NotClaimed(reason="over_budget", detail=reason)
    try:
        row = _hold_at_tenant(tx, row)
    except OverBudget as error:
        return _kept(tx, row, NotClaimed(reason="over_budget", detail=f"the tenant's budget {error}"))
    return _grant(tx, desk, rows=(row, task_row), request=request)


def _kept(tx: Transaction, row: JobRow | None, refused: NotClaimed) -> NotClaimed:
    """Let people see why a job that is ready does not start, and have it tried again."""
    if row is None or not row.state.is_ready or refused.reason not in _SHOWN:
        return refused
    if refused.reason == "over_budget" and row.refusal != refused.detail:
        tx.jobs.save(replace(row, refusal=refused.detail, updated_ms=tx.now_ms))
    # The dispatcher knows by itself when there is a place again, but not when there is money again.
    tx.backlog.refuse(row.state.job_id, at_once=refused.reason == "at_capacity")
    return refused


def _misfit(tx: Transaction, row: JobRow) -> str:
    if row.tenant_hold is not None:
        return ""
    above = tx.budgets.get(tenant_budget(row.state.tenant_id)).limits
    return budget.misfit(row.account.limits, above=above)


def _give_up(tx: Transaction, desk: Desk, job_id: str, *, reason: str) -> None:
    """End a job that could wait for ever."""
    rows = load(tx, job_id, scope=EVERY_TENANT)
    events = job.decide(rows[0].state, GiveUpJob(failure_class="budget_exhausted"))
    begun = "goes no further" if rows[0].state.attempts else "was never started"
    message = f"it {begun}: {reason}. Ask again with smaller limits, or have the tenant's raised"
    result = result_without_worker(
        tx, rows[0], status="failed", failure_class="budget_exhausted", message=message
    )
    end_job(tx, desk, rows=rows, events=events, result=result, actor=f"tenant:{rows[0].state.tenant_id}")


def _refusal(tx: Transaction, desk: Desk, *, row: JobRow | None, request: ClaimRequest) -> NotClaimed | None:
    if request.protocol != PROTOCOL_VERSION:
        return NotClaimed(
            reason="protocol",
            detail=f"the worker speaks protocol {request.protocol}, not {PROTOCOL_VERSION}: update it",
        )
    if row is None:
        return NotClaimed(reason="unknown_job", detail=request.job_id)
    most = tenant_concurrency(tx, desk.rules, row.state.tenant_id)
    if most is not None and tx.leases.live_of_tenant(row.state.tenant_id) >= most:
        return NotClaimed(
            reason="at_capacity", detail=f"tenant {row.state.tenant_id} has {most} jobs at work"
        )
    if refused := _not_ready(row.state, generation=request.generation, now_ms=tx.now_ms):
        return refused
    switched = switches.refusal(tx, row, worker_id=request.worker_id)
    return NotClaimed(reason="switched_off", detail=switched) if switched else None


def _not_ready(state: JobState, *, generation: int, now_ms: int) -> NotClaimed | None:
    if state.is_leased:
        return NotClaimed(reason="leased", detail=f"fence {state.fence}")
    if state.generation != generation:
        return NotClaimed(reason="stale_generation", detail=f"the current one is {state.generation}")
    if state.desired in ("stop", "kill") or state.state == "stopped":
        return NotClaimed(reason="stopped", detail=state.reason)
    if not state.is_ready:
        return NotClaimed(reason="not_ready", detail=state.state)
    if state.deadline_ms is not None and state.deadline_ms <= now_ms:
        return NotClaimed(reason="not_ready", detail="its deadline has passed")
    return None


def _hold_at_tenant(tx: Transaction, row: JobRow) -> JobRow:
    """Set the job's limits aside once; a later attempt works under the same hold, after parking under what is left."""
    if row.tenant_hold is not None:
        return row
    budget_id = tenant_budget(row.state.tenant_id)
    account = tx.budgets.get(budget_id)
    limits = budget.left_of(row.account.limits, spent=row.tenant_settled)
    amount = budget.whole_job(limits, above=account.limits)
    tx.budgets.save(budget_id, budget.hold(account, amount))
    tx.budgets.enter(LedgerEntry(budget_id=budget_id, job_id=row.state.job_id, kind="hold", amount=amount))
    return replace(row, tenant_hold=amount)


def _grant(tx: Transaction, desk: Desk, *, rows: tuple[JobRow, TaskRow], request: ClaimRequest) -> Claimed:
    row, task_row = rows
    events = job.decide(row.state, ClaimJob(worker_id=request.worker_id, generation=request.generation))
    row = replace(row, refusal="")
    row, _ = apply_job(tx, desk, rows=(row, task_row), events=events, actor=request.worker_id)
    granted = events[0]
    assert isinstance(granted, JobLeased)
    spent_ms = tx.leases.spent_ms(row.state.job_id)
    ttl_ms = desk.rules.lease_ttl_ms
    tx.leases.put(
        Lease(
            job_id=row.state.job_id,
            tenant_id=row.state.tenant_id,
            worker_id=request.worker_id,
            fence=Fence(granted.fence),
            attempt=granted.attempt,
            granted_ms=tx.now_ms,
            until_ms=tx.now_ms + ttl_ms,
            renewed_ms=tx.now_ms,
        )
    )
    tx.workers.seen(request.worker_id)
    return Claimed(
        spec=spec_of(tx, row.state.job_id),
        lease=GrantedLease(
            job_id=row.state.job_id, attempt=granted.attempt, fence=granted.fence, ttl_ms=ttl_ms
        ),
        trace_events=row.trace_events,
        trace_head=row.trace_head,
        spent_wall_time_ms=spent_ms,
        answers=tx.answers.of(row.state.job_id),
        retune=_newer(tx, row.state, seen=0),
    )


def _newer(tx: Transaction, state: JobState, *, seen: int) -> Retune | None:
    """Limits that the worker does not work under yet. Told again until it says that it does."""
    return tx.retunes.latest(state.job_id) if state.budget_version > seen else None


@retried
def renew(desk: Desk, request: RenewRequest) -> RenewAnswer:
    """Extend a live lease; the answer carries what the worker must know."""
    with desk.store.write("normal") as tx:
        row, _ = load(tx, request.job_id, scope=EVERY_TENANT)
        lease = guard(tx.leases.get(request.job_id), fence=request.fence, now_ms=tx.now_ms)
        until_ms = extended(lease, now_ms=tx.now_ms, ttl_ms=desk.rules.lease_ttl_ms).until_ms
        tx.leases.extend(request.job_id, fence=request.fence, until_ms=until_ms)
        steers = tx.steers.after(request.job_id, seen=request.steer_seen)
        retune = _newer(tx, row.state, seen=request.budget_seen)
    side = desk.side.of(request.job_id)
    return RenewAnswer(
        desired=row.state.desired if side is None else stronger(row.state.desired, side.order),
        reason=row.state.reason if side is None else side.reason,
        steers=steers,
        ttl_ms=desk.rules.lease_ttl_ms,
        retune=retune,
    )


def await_orders(desk: Desk, request: AwaitOrdersRequest) -> RenewAnswer:
    """Answer as soon as something new is wanted, or the lease is over, or the time is up."""
    deadline = time.monotonic() + request.timeout_ms / 1000
    desk.side.listen(desk.store.announce)
    with desk.store.watch() as watch:
        while True:
            found, now_ms = watch.read(request.job_id, steer_seen=request.steer_seen)
            wanted = found or Orders(desired="kill", reason="the job is not here", lease=None)
            guard(wanted.lease, fence=request.fence, now_ms=now_ms)
            wanted = _with_side(wanted, desk.side.of(request.job_id))
            left = deadline - time.monotonic()
            is_retuned = wanted.budget_version > request.budget_seen
            is_new = wanted.desired != request.seen or wanted.steers or is_retuned
            if is_new or left <= 0 or not watch.wait(timeout=left):
                return RenewAnswer(
                    desired=wanted.desired,
                    reason=wanted.reason,
                    steers=wanted.steers,
                    ttl_ms=desk.rules.lease_ttl_ms,
                    retune=_retune(desk, request.job_id) if is_retuned else None,
                )


def _with_side(wanted: Orders, side: SideOrder | None) -> Orders:
    """An order beside the store counts although it is not entered yet."""
    if side is None or stronger(wanted.desired, side.order) == wanted.desired:
        return wanted
    return replace(wanted, desired=side.order, reason=side.reason)


def _retune(desk: Desk, job_id: str) -> Retune | None:
    with desk.store.read() as tx:
        return tx.retunes.latest(job_id)


@retried
def lose(desk: Desk, lease: Lease, *, reason: str, by: str = "lease_reaper") -> None:
    """Take the lease away from a worker that is gone. Its job is queued again, held, stopped or quarantined."""
    # A job that shall end must not become ready again because its order waits beside the store.
    orders.enter(desk)
    with desk.store.write() as tx:
        # The job first: nobody else touches its lease while its row is ours.
        rows = load(tx, lease.job_id, scope=EVERY_TENANT)
        current = tx.leases.get(lease.job_id)
        if current is None or current.fence != lease.fence:
            return
        is_gone = desk.is_gone(current.worker_id)
        if current.is_live(tx.now_ms) and not is_gone:
            return
        survivors = () if is_gone else (desk.pid_of(current.worker_id),)
        command = LoseLease(fence=lease.fence, reason=reason, at_ms=tx.now_ms, survivors=survivors)
        events = job.decide(rows[0].state, command)
        after = reduce(job.evolve, events, rows[0].state)
        # Time between a crash and its discovery is nobody's work, and what ended is counted before a result is made.
        ended_ms = current.last_sign_of_life(recorded_ms=rows[0].recorded_ms)
        tx.leases.drop(lease.job_id, outcome="lost", ended_ms=ended_ms)
        if not after.is_terminal:
            apply_job(tx, desk, rows=rows, events=events, actor=by)
        else:
            result = _result_of_loss(tx, rows[0], after=after, reason=reason)
            end_job(tx, desk, rows=rows, events=events, result=result, actor=by)
    desk.store.announce(lease.job_id)


def _result_of_loss(tx: Transaction, row: JobRow, *, after: JobState, reason: str) -> JobResult:
    if after.state == "quarantined":
        return result_without_worker(
            tx, row, status="failed", failure_class="quarantined", message=after.reason
        )
    message = after.reason or reason
    if after.stop is not None and after.stop.verified_ms is None:
        message += " [the stop is not verified: its worker did not answer and may still be there]"
    return result_without_worker(tx, row, status="stopped", failure_class="stopped", message=message)


def hand_back(desk: Desk, *, worker_id: str) -> int:
    """Let go of everything a worker of this process holds, so that others go on with it; return how many jobs."""
    orders.enter(desk)
    with desk.store.read() as tx:
        held = [lease for lease in tx.leases.all() if lease.worker_id == worker_id]
    for lease in held:
        with desk.store.write() as tx:
            rows = load(tx, lease.job_id, scope=EVERY_TENANT)
            events = job.decide(rows[0].state, HandBack(fence=lease.fence))
            apply_job(tx, desk, rows=rows, events=events, actor=worker_id)
    if held:
        desk.store.announce()
    return len(held)
