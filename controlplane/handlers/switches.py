"""Kill switches: engaged and released by people, with a reason; read in every transaction that starts something."""

from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from controlplane.domain import job
from controlplane.domain.commands import Order, ResumeJob
from controlplane.domain.identity import EVERY_TENANT, Caller
from controlplane.domain.switches import ScopeKind, Subject, Switch, check, check_reason, covering
from controlplane.errors import Denied, InvalidRequest, NotFound, Unavailable
from controlplane.handlers.apply import apply_job, load
from controlplane.handlers.orders import apply_switch, enter_one, enter_switch
from controlplane.handlers.permits import require
from controlplane.ports import Desk, JobRow, Transaction
from controlplane.views import SwitchView

#: Fields that the store gives.
_GIVEN = ("order_id", "at_ms", "released_ms", "released_by", "released_reason")


@dataclass(frozen=True, kw_only=True)
class WantedSwitch:
    """What somebody wants to engage."""

    scope_kind: ScopeKind
    scope_id: str = ""
    action: Order = "kill"
    reason: str
    #: Limits a tool's or model's switch to one tenant; a caller of a tenant is limited to its own anyway.
    tenant_id: str = ""


def engage(desk: Desk, wanted: WantedSwitch, *, caller: Caller) -> SwitchView:
    """Put a switch in force. After its commit nothing that it covers starts; what is at work is ordered to end.

    `order_id` is 0 when the database is held up: the jobs at work have the order, and it is entered as soon as that is free.
    """
    check(wanted.scope_kind, wanted.scope_id, action=wanted.action, reason=wanted.reason)
    with desk.store.read() as tx:
        switch = _permitted(tx, wanted, caller=caller)
        at_work = [subject.job_id for subject in tx.controls.at_work() if switch.covers(subject)]
    fields = {name: value for name, value in asdict(switch).items() if name not in _GIVEN}
    side = desk.side.put(order=switch.action, by=caller.name, reason=str(switch), jobs=at_work, switch=fields)
    desk.store.announce()
    try:
        with desk.store.write() as tx:
            _permitted(tx, wanted, caller=caller)
            if side is None:
                entered: Switch | None = enter_switch(tx, desk, switch)
            else:
                enter_one(tx, desk, side)
                entered = _newest(tx, switch)
    except Unavailable:
        if side is None:
            raise
        return _view(replace(switch, at_ms=side.at_ms))
    if side is not None:
        desk.side.entered([side.mark])
    desk.store.announce()
    return _view(entered or switch)


def _newest(tx: Transaction, wanted: Switch) -> Switch | None:
    """The switch as it was entered, by us or by somebody who found it beside the store before us."""
    scope = (wanted.scope_kind, wanted.scope_id, wanted.tenant_id, wanted.action)
    found = [
        each
        for each in tx.controls.in_force()
        if (each.scope_kind, each.scope_id, each.tenant_id, each.action) == scope
    ]
    return found[-1] if found else None


def _permitted(tx: Transaction, wanted: WantedSwitch, *, caller: Caller) -> Switch:
    """The switch with its owner; Denied for what is beyond the caller's tenant."""
    tenant_id = _owner(tx, wanted, caller=caller)
    require(tx, caller, "switch.engage", tenant_id=tenant_id)
    return Switch(
        scope_kind=wanted.scope_kind,
        scope_id=wanted.scope_id,
        tenant_id=tenant_id,
        action=wanted.action,
        reason=wanted.reason,
        by=caller.name,
    )


def _owner(tx: Transaction, wanted: WantedSwitch, *, caller: Caller) -> str:
    own = caller.scope.tenant_id
    match wanted.scope_kind:
        case "job":
            return load(tx, wanted.scope_id, scope=caller.scope)[0].state.tenant_id
        case "task":
            found = tx.tasks.get(wanted.scope_id, scope=caller.scope)
            if found is None:
                raise NotFound(
                    f"there is no task {wanted.scope_id!r}: `custody jobs` names the task of each job"
                )
            return found.state.tenant_id
        case "tool" | "model":
            if own is not None and wanted.tenant_id not in ("", own):
                raise Denied(f"{caller.name} may only engage switches of its own tenant {own!r}")
            return own or wanted.tenant_id
        case "tenant":
            if not caller.scope.covers(wanted.scope_id):
                raise Denied(f"{caller.name} may only engage switches of its own tenant {own!r}")
            return wanted.scope_id
        case _:
            if own is not None:
                raise Denied(
                    f"a switch on {wanted.scope_kind} reaches other tenants: "
                    f"{caller.name} may engage those of its own tenant {own!r}"
                )
            return ""


def release(desk: Desk, order_id: int, *, reason: str, caller: Caller) -> SwitchView:
    """Let what it covered go on: jobs that wait are taken up, jobs that it paused are resumed."""
    check_reason(reason)
    with desk.store.write() as tx:
        switch = tx.controls.get(order_id, scope=caller.scope)
        if switch is None:
            raise NotFound(f"there is no kill switch {order_id}: `custody switches` shows those in force")
        if caller.scope.tenant_id is not None and not switch.tenant_id:
            raise Denied(f"kill switch {order_id} reaches other tenants: {caller.name} may not release it")
        require(tx, caller, "switch.release", tenant_id=switch.tenant_id)
        if switch.released_ms is not None:
            raise InvalidRequest(f"kill switch {order_id} was released by {switch.released_by} already")
        tx.controls.release(order_id, by=caller.name, reason=reason)
        _resume_paused(tx, desk, switch, by=caller.name)
        tx.controls.audit(
            tenant_id=switch.tenant_id,
            principal=caller.name,
            action="switch.release",
            target=switch.mark,
            reason=reason,
        )
        released = tx.controls.get(order_id, scope=caller.scope)
    desk.store.announce()
    assert released is not None
    return _view(released)


def _resume_paused(tx: Transaction, desk: Desk, switch: Switch, *, by: str) -> None:
    """Whatever a person, or another switch, paused stays so."""
    if switch.action != "pause":
        return
    at_work = [subject.job_id for subject in tx.controls.at_work() if switch.covers(subject)]
    for job_id in [*tx.controls.held(tenant_id=switch.tenant_id), *at_work]:
        rows = load(tx, job_id, scope=EVERY_TENANT)
        stop = rows[0].state.stop
        if stop is not None and stop.by == switch.mark and rows[0].state.desired == "pause":
            events = job.decide(rows[0].state, ResumeJob(by=by))
            apply_job(tx, desk, rows=rows, events=events, actor=by)


def page(
    desk: Desk, *, caller: Caller, limit: int = 50, before: int | None = None, only_in_force: bool = True
) -> list[SwitchView]:
    """Newest first; `before` is the number of the last one of the page before."""
    with desk.store.read() as tx:
        require(tx, caller, "switch.read", tenant_id=caller.scope.tenant_id or "")
        found = tx.controls.page(scope=caller.scope, limit=limit, before=before, only_in_force=only_in_force)
    return [_view(each) for each in found]


def enforce(desk: Desk) -> int:
    """Order again what is at work under a switch and has no order; return how many. For jobs that slipped through a crash."""
    with desk.store.read() as tx:
        switches = tx.controls.in_force()
        missed = _missed(tx, switches) if switches else []
    for switch, job_id in missed:
        with desk.store.write() as tx:
            apply_switch(tx, desk, switch, job_id)
    if missed:
        desk.store.announce()
    return len(missed)


def _missed(tx: Transaction, switches: list[Switch]) -> list[tuple[Switch, str]]:
    covered = [(covering(switches, subject), subject) for subject in tx.controls.at_work()]
    found = []
    for switch, subject in covered:
        row = None if switch is None else tx.jobs.get(subject.job_id, scope=EVERY_TENANT)
        if switch is not None and row is not None and row.state.desired == "run":
            found.append((switch, subject.job_id))
    return found


def subject_of(row: JobRow, *, image: str = "") -> Subject:
    return Subject(
        job_id=row.state.job_id,
        task_id=row.state.task_id,
        tenant_id=row.state.tenant_id,
        models=tuple(filter(None, (row.state.model, row.state.sub_model))),
        tools=tuple(row.tools.split()),
        image=image,
    )


def refusal(tx: Transaction, row: JobRow, *, worker_id: str) -> str:
    """Why this job may not start on this worker now; empty: it may, and none is engaged before that commits."""
    switches = tx.controls.in_force(is_starting=True)
    if not switches:
        return ""
    image = tx.controls.image_of(worker_id) if any(each.scope_kind == "image" for each in switches) else ""
    found = covering(switches, subject_of(row, image=image))
    return "" if found is None else str(found)


def refused_model(tx: Transaction, row: JobRow, models: set[str]) -> str:
    """Why no call may be made to one of these models for this job; empty: they may."""
    for switch in tx.controls.in_force(is_starting=True):
        if switch.action != "kill" or switch.scope_kind != "model":
            continue
        if switch.covers(replace(subject_of(row), models=tuple(models))):
            return str(switch)
    return ""


def _view(switch: Switch) -> SwitchView:
    return SwitchView(
        order_id=switch.order_id,
        scope_kind=switch.scope_kind,
        scope_id=switch.scope_id,
        tenant_id=switch.tenant_id,
        action=switch.action,
        reason=switch.reason,
        by=switch.by,
        at=datetime.fromtimestamp(switch.at_ms / 1000, tz=UTC),
        released_at=None
        if switch.released_ms is None
        else datetime.fromtimestamp(switch.released_ms / 1000, tz=UTC),
        released_by=switch.released_by,
        released_reason=switch.released_reason,
    )
