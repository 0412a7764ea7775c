"""Parking: a job that waits for something outside holds nothing meanwhile, and becomes ready again by time or command."""

from datetime import datetime

from controlplane.crashpoints import crash_here
from controlplane.domain import job
from controlplane.domain.commands import ParkJob, RejectLateWrite, UnparkJob
from controlplane.domain.identity import EVERY_TENANT, Caller
from controlplane.domain.ids import Fence
from controlplane.domain.lease import guard
from controlplane.errors import FenceStale, InvalidRequest
from controlplane.handlers.apply import apply_job, load, settled_so_far
from controlplane.handlers.asking import wake_if_answered
from controlplane.handlers.permits import require
from controlplane.handlers.recording import reject_late_write
from controlplane.handlers.retrying import retried
from controlplane.ports import Desk, JobRow, TaskRow, Transaction
from rlm_worker.contracts.gateway import ParkAnswer, ParkRequest


@retried
def park(desk: Desk, request: ParkRequest) -> ParkAnswer:
    """Take the lease back and let the job wait. Asked again it is answered the same; a stop in force is not parked."""
    try:
        with desk.store.write() as tx:
            answer = _park(tx, desk, request)
            crash_here("park.before_commit")
    except FenceStale:
        reject_late_write(desk, request.job_id, RejectLateWrite(fence=Fence(request.fence), what="park"))
        raise
    desk.store.announce(request.job_id)
    crash_here("park.after_commit")
    return answer


def _park(tx: Transaction, desk: Desk, request: ParkRequest) -> ParkAnswer:
    row, task_row = load(tx, request.job_id, scope=EVERY_TENANT)
    command = ParkJob(
        fence=Fence(request.fence),
        reason=request.reason,
        detail=request.detail,
        not_before_ms=_ms(request.not_before),
    )
    events = job.decide(row.state, command)
    if not events:
        return ParkAnswer(parked=row.state.state == "parked")
    lease = guard(tx.leases.get(request.job_id), fence=request.fence, now_ms=tx.now_ms)
    rows = apply_job(tx, desk, rows=(_let_go(tx, row), task_row), events=events, actor=lease.worker_id)
    # An answer may have come while the worker was letting go.
    wake_if_answered(tx, desk, rows, by=lease.worker_id)
    return ParkAnswer(parked=True)


def _let_go(tx: Transaction, row: JobRow) -> JobRow:
    """Settle with the tenant: a job that waits holds no budget."""
    if row.account.open:
        raise InvalidRequest(
            f"job {row.state.job_id} has {len(row.account.open)} calls whose cost is not settled: "
            "record their end before parking it"
        )
    return settled_so_far(tx, row)


def _ms(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp() * 1000)


@retried
def unpark(desk: Desk, job_id: str, *, caller: Caller) -> bool:
    """Make a parked job ready because somebody wants it; False when it is not parked any more."""
    with desk.store.write() as tx:
        rows = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "job.submit", tenant_id=rows[0].state.tenant_id, job_id=job_id)
        is_parked = _wake(tx, desk, rows, by=caller.name)
    desk.store.announce(job_id)
    return is_parked


@retried
def wake(desk: Desk, job_id: str, *, by: str) -> bool:
    """Make a parked job ready because its time has come; False when it is not parked any more."""
    with desk.store.write() as tx:
        is_parked = _wake(tx, desk, load(tx, job_id, scope=EVERY_TENANT), by=by)
    desk.store.announce(job_id)
    return is_parked


def _wake(tx: Transaction, desk: Desk, rows: tuple[JobRow, TaskRow], *, by: str) -> bool:
    events = job.decide(rows[0].state, UnparkJob(by=by))
    apply_job(tx, desk, rows=rows, events=events, actor=by)
    return bool(events)
