"""Orders to stop, pause or kill: first beside the store, where they wait for nobody, then in it, once."""

from functools import reduce

from controlplane.domain import job
from controlplane.domain.commands import Order, OrderStop
from controlplane.domain.identity import EVERY_TENANT
from controlplane.domain.switches import Switch
from controlplane.handlers.apply import apply_job, end_job, load, result_without_worker
from controlplane.ports import Desk, Transaction
from controlplane.ports_control import SideOrder


def order_job(
    tx: Transaction, desk: Desk, job_id: str, *, order: Order, by: str, reason: str, at_ms: int
) -> bool:
    """Enter an order. False means: too late, the job has ended or a stronger order is in force."""
    rows = load(tx, job_id, scope=EVERY_TENANT)
    events = job.decide(rows[0].state, OrderStop(order=order, by=by, reason=reason, at_ms=at_ms))
    if not events:
        return False
    if not reduce(job.evolve, events, rows[0].state).is_terminal:
        apply_job(tx, desk, rows=rows, events=events, actor=by)
        return True
    had = "while no worker had it" if rows[0].state.attempts else "before any worker had it"
    message = f"stopped by {by} {had}" + (f": {reason}" if reason else "")
    result = result_without_worker(tx, rows[0], status="stopped", failure_class="stopped", message=message)
    end_job(tx, desk, rows=rows, events=events, result=result, actor=by)
    return True


def enter(desk: Desk) -> int:
    """Enter what stands beside the store; return how many orders. Whoever else does so at the same time does no harm."""
    waiting = desk.side.pending()
    for side in waiting:
        with desk.store.write() as tx:
            enter_one(tx, desk, side)
        desk.side.entered([side.mark])
    if waiting:
        desk.store.announce()
    return len(waiting)


def enter_one(tx: Transaction, desk: Desk, side: SideOrder) -> bool:
    """False when it was entered before, or came too late for every job."""
    if not tx.controls.take_mark(side.mark):
        return False
    if side.switch is not None:
        enter_switch(tx, desk, Switch(**side.switch, at_ms=side.at_ms))
        return True
    given = [
        order_job(tx, desk, job_id, order=side.order, by=side.by, reason=side.reason, at_ms=side.at_ms)
        for job_id in side.jobs
    ]
    return any(given)


def enter_switch(tx: Transaction, desk: Desk, wanted: Switch) -> Switch:
    """Put a switch in force and order what it covers: when this commits, nothing more of that starts."""
    again = _same_scope(tx.controls.in_force(), wanted)
    switch = tx.controls.engage(wanted)
    for subject in tx.controls.at_work():
        if switch.covers(subject):
            apply_switch(tx, desk, switch, subject.job_id, is_again=again)
    tx.controls.audit(
        tenant_id=switch.tenant_id,
        principal=switch.by,
        action="switch.engage",
        target=f"{switch.mark} {switch.scope_kind} {switch.scope_id} {switch.action}"[:200],
        reason=switch.reason,
    )
    return switch


def _same_scope(switches: list[Switch], wanted: Switch) -> bool:
    scope = (wanted.scope_kind, wanted.scope_id, wanted.tenant_id)
    return any((each.scope_kind, each.scope_id, each.tenant_id) == scope for each in switches)


def apply_switch(tx: Transaction, desk: Desk, switch: Switch, job_id: str, *, is_again: bool = False) -> bool:
    """Order one job what the switch says. Only the same switch pressed again makes a kill of a stop."""
    row = tx.jobs.get(job_id, scope=EVERY_TENANT)
    if row is None or (row.state.desired == switch.action and not is_again):
        return False
    return order_job(
        tx,
        desk,
        job_id,
        order=switch.action,
        by=switch.mark,
        reason=str(switch),
        at_ms=switch.at_ms or tx.now_ms,
    )
