"""Settling: a result is accepted once, from the holder of the lease, and folded into its task in the same transaction."""

from controlplane.crashpoints import crash_here
from controlplane.domain import job
from controlplane.domain.commands import RejectLateWrite, SettleJob
from controlplane.domain.identity import EVERY_TENANT
from controlplane.domain.ids import Fence
from controlplane.domain.lease import Lease, guard
from controlplane.errors import FenceStale, InvalidRequest
from controlplane.handlers.apply import end_job, load, spec_of, usage_of
from controlplane.handlers.recording import reject_late_write
from controlplane.handlers.retrying import retried
from controlplane.ports import Desk, JobRow, Transaction
from controlplane.schemas import checker
from rlm_worker.contracts import JobResult, JobSpec, digest
from rlm_worker.contracts.gateway import SettleAnswer, SettleRequest


@retried
def settle(desk: Desk, request: SettleRequest) -> SettleAnswer:
    """Accept a result. The same one again from the same fence is answered the same; a stale fence is refused and kept."""
    try:
        with desk.store.write() as tx:
            answer = _settle(tx, desk, request)
            crash_here("settle.before_commit")
    except FenceStale:
        reject_late_write(desk, request.job_id, RejectLateWrite(fence=Fence(request.fence), what="settle"))
        raise
    desk.store.announce(request.job_id)
    crash_here("settle.after_commit")
    return answer


def _settle(tx: Transaction, desk: Desk, request: SettleRequest) -> SettleAnswer:
    rows = load(tx, request.job_id, scope=EVERY_TENANT)
    result = request.result
    events = job.decide(
        rows[0].state,
        SettleJob(
            fence=Fence(request.fence),
            status=result.status,
            failure_class=result.failure_class,
            result_digest=digest(result.model_dump(mode="json")),
        ),
    )
    if not events:
        return SettleAnswer(accepted=True, receipt_id=rows[0].receipt_id)
    lease = guard(tx.leases.get(request.job_id), fence=request.fence, now_ms=tx.now_ms)
    _check_result(result, row=rows[0], lease=lease, spec=spec_of(tx, request.job_id))
    ended = end_job(tx, desk, rows=rows, events=events, result=result, actor=lease.worker_id)
    return SettleAnswer(accepted=True, receipt_id=ended.receipt_id)


def _check_result(result: JobResult, *, row: JobRow, lease: Lease, spec: JobSpec) -> None:
    if result.job_id != spec.job_id or result.attempt != lease.attempt:
        raise InvalidRequest(
            f"the result is of job {result.job_id} attempt {result.attempt}, "
            f"the lease of job {spec.job_id} attempt {lease.attempt}"
        )
    trace = result.trace_ref
    if (trace.job_id, trace.events, trace.head) != (spec.job_id, row.trace_events, row.trace_head):
        raise InvalidRequest(
            f"the result points to {trace.events} trace events, {row.trace_events} are stored: "
            "record the whole trace before settling"
        )
    _check_usage(result, row)
    if result.status in ("succeeded", "partial") and result.structured_output is not None:
        error = next(checker(spec.output_schema).iter_errors(result.structured_output), None)
        if error is not None:
            raise InvalidRequest(f"the output does not fit the job's schema: {error.message}")


def _check_usage(result: JobResult, row: JobRow) -> None:
    """What the worker says it spent must be what it recorded: the sum over its calls."""
    usage, counted = result.usage, usage_of(row, wall_time_ms=result.usage.wall_time_ms)
    said = (usage.subcalls, usage.input_tokens, usage.output_tokens, usage.cost_usd)
    recorded = (row.account.spent.subcalls, counted.input_tokens, counted.output_tokens, counted.cost_usd)
    if said != recorded:
        raise InvalidRequest(
            "the result claims {} subcalls, {} input and {} output tokens, {} USD; ".format(*said)
            + "the trace adds up to {}, {}, {}, {}".format(*recorded)
        )
