"""An operator's hand on a job: stop, steer, resume."""

from controlplane.domain import job
from controlplane.domain.commands import Order, ResumeJob, SteerJob
from controlplane.domain.identity import Caller
from controlplane.errors import InvalidRequest, Unavailable
from controlplane.handlers import leases, orders
from controlplane.handlers.apply import apply_job, load
from controlplane.handlers.permits import require
from controlplane.handlers.retrying import retried
from controlplane.ports import Desk

_MAX_STEER = 10_000


@retried
def stop(desk: Desk, job_id: str, *, order: Order, caller: Caller, reason: str) -> bool:
    """Order a job to pause, stop or die. False means: too late, it has ended or a stronger order is in force.

    The order reaches the worker although the database may be held up; it is entered there as soon as that is free.
    """
    with desk.store.read() as tx:
        rows = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "job.stop", tenant_id=rows[0].state.tenant_id, job_id=job_id)
    if rows[0].state.is_terminal:
        return False
    side = desk.side.put(order=order, by=caller.name, reason=reason, jobs=[job_id])
    desk.store.announce(job_id)
    try:
        with desk.store.write() as tx:
            require(tx, caller, "job.stop", tenant_id=rows[0].state.tenant_id, job_id=job_id)
            if side is not None:
                is_given = orders.enter_one(tx, desk, side)
            else:
                is_given = orders.order_job(
                    tx, desk, job_id, order=order, by=caller.name, reason=reason, at_ms=tx.now_ms
                )
    except Unavailable:
        if side is None:
            raise
        return True
    if side is not None:
        desk.side.entered([side.mark])
    desk.store.announce(job_id)
    return is_given


@retried
def steer(desk: Desk, job_id: str, *, text: str, caller: Caller) -> int:
    """Leave an instruction for the next iteration; return its number."""
    if not text.strip() or len(text) > _MAX_STEER:
        raise InvalidRequest(f"a steer is 1 to {_MAX_STEER} characters of text, this one has {len(text)}")
    with desk.store.write() as tx:
        rows = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "job.steer", tenant_id=rows[0].state.tenant_id, job_id=job_id)
        steer_id = tx.steers.add(job_id, text=text, by=caller.name)
        events = job.decide(rows[0].state, SteerJob(steer_id=steer_id, text=text, by=caller.name))
        apply_job(tx, desk, rows=rows, events=events, actor=caller.name)
    desk.store.announce(job_id)
    return steer_id


@retried
def resume(desk: Desk, job_id: str, *, caller: Caller) -> None:
    """Make a job ready again: one that is held, or whose worker is gone. A job that is on its way stays so."""
    with desk.store.read() as tx:
        rows = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "job.submit", tenant_id=rows[0].state.tenant_id, job_id=job_id)
        lease = tx.leases.get(job_id)
    if lease is not None and desk.is_gone(lease.worker_id):
        leases.lose(desk, lease, reason="its worker process is gone", by=caller.name)
    with desk.store.write() as tx:
        rows = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "job.submit", tenant_id=rows[0].state.tenant_id, job_id=job_id)
        events = job.decide(rows[0].state, ResumeJob(by=caller.name))
        row, _ = apply_job(tx, desk, rows=rows, events=events, actor=caller.name)
        if not events and row.state.is_ready:
            tx.backlog.refuse(job_id, at_once=True)
    desk.store.announce(job_id)
