"""Submit: a request becomes a task (when none is named), a job and a wake-up, in one transaction."""

import json
import re
from dataclasses import fields, replace
from datetime import datetime
from functools import reduce

from pydantic import ValidationError

from controlplane.crashpoints import crash_here
from controlplane.domain import job, task
from controlplane.domain.budget import Account, limits_of
from controlplane.domain.commands import (
    AddStep,
    CreateTask,
    JobRequest,
    PlannedStep,
    StartStep,
    SubmitJob,
    TaskCommand,
    Timing,
)
from controlplane.domain.events import Event
from controlplane.domain.identity import EVERY_TENANT, Caller
from controlplane.domain.ids import JobId, StepId, TaskId, TenantId
from controlplane.domain.job_state import JobState
from controlplane.domain.queueing import MOST_PRIORITY
from controlplane.domain.task import TaskState
from controlplane.domain.task_events import TaskEvent
from controlplane.domain.terms import terms_of
from controlplane.errors import InvalidRequest, NotFound
from controlplane.handlers.apply import apply_task
from controlplane.handlers.permits import require
from controlplane.handlers.retrying import retried
from controlplane.ports import Desk, JobRow, TaskRow, Transaction
from controlplane.schemas import checker
from rlm_worker.contracts import JobSpec, digest
from rlm_worker.contracts.job import ModelDriver

_TIMING = ("priority", "not_before", "deadline", "traceparent")
_AT_ONCE = Timing()
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@retried
def submit(desk: Desk, request: JobRequest, *, caller: Caller) -> str:
    """Enter a job and return its id. The same `job_id` with the same request again changes nothing."""
    tenant_id = request.tenant_id or caller.scope.tenant_id or desk.rules.default_tenant
    request = replace(request, tenant_id=tenant_id)
    _refuse_unpriced(desk, request)
    with desk.store.write() as tx:
        known = None if request.job_id is None else tx.jobs.get(request.job_id, scope=EVERY_TENANT)
        if known is not None and known.state.tenant_id != tenant_id:
            raise InvalidRequest(f"job id {request.job_id!r} cannot be used: choose another, or leave it out")
        spec = _spec(desk, request, known=known)
        require(tx, caller, "job.submit", tenant_id=tenant_id, spec=spec)
        if known is not None:
            return _same(known, spec)
        timing = _timing(request, now_ms=tx.now_ms)
        progress_ms = _progress_ms(desk, request)
        adds_step = request.task_id is not None
        enter(tx, desk, spec, adds_step=adds_step, timing=timing, progress_ms=progress_ms)
    desk.store.announce(spec.job_id)
    crash_here("submit.after_commit")
    return spec.job_id


def _progress_ms(desk: Desk, request: JobRequest) -> int | None:
    """A job whose single cells may take long is not stuck while one runs."""
    if request.progress_seconds is not None:
        return int(request.progress_seconds * 1000)
    two_cells_ms = int(request.sandbox_policy.cell_seconds * 2_000)
    return two_cells_ms if two_cells_ms > desk.rules.stuck.progress_ms else None


def _refuse_unpriced(desk: Desk, request: JobRequest) -> None:
    """A limit in money means nothing for a model whose price nobody knows."""
    if request.budget.max_cost_usd is None:
        return
    root = (request.driver.model,) if isinstance(request.driver, ModelDriver) else ()
    for model in (*root, request.sub_model):
        if not desk.is_priced(model):
            raise InvalidRequest(
                f"the price of model {model!r} is unknown, and the job has a limit in money: "
                "limit tokens instead, or set CUSTODY_MODEL_PRICE=IN/OUT in dollars per million tokens"
            )


def _spec(desk: Desk, request: JobRequest, *, known: JobRow | None) -> JobSpec:
    content = {
        field.name: getattr(request, field.name)
        for field in fields(request)
        if field.name not in ("job_id", "task_id", "tenant_id", "progress_seconds", *_TIMING)
    }
    try:
        checker(request.output_schema)
        spec = JobSpec(
            job_id=request.job_id or desk.new_id("job"),
            tenant_id=request.tenant_id or desk.rules.default_tenant,
            task_id=request.task_id or (known.state.task_id if known else desk.new_id("task")),
            step_id=known.state.step_id if known else desk.new_id("step"),
            **content,
        )
        # What is no text cannot be written down: it would come back as something else.
        json.dumps(spec.model_dump(), ensure_ascii=False, default=str).encode()
    except ValidationError as error:
        raise InvalidRequest(f"the job cannot be submitted: {_first(error)}") from error
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"the job cannot be submitted: a text in it holds half a character: {error}"
        ) from error
    return spec


def _timing(request: JobRequest, *, now_ms: int) -> Timing:
    not_before_ms = _ms("not_before", request.not_before)
    deadline_ms = _ms("deadline", request.deadline)
    if abs(request.priority) > MOST_PRIORITY:
        raise InvalidRequest(
            f"priority {request.priority} is out of range: it lies between -{MOST_PRIORITY} and {MOST_PRIORITY}"
        )
    if deadline_ms is not None and deadline_ms <= max(now_ms, not_before_ms or 0):
        raise InvalidRequest(
            f"the deadline {request.deadline:%Y-%m-%d %H:%M:%S %z} has passed before the job may start: name a later one"
        )
    if request.traceparent and not _TRACEPARENT.fullmatch(request.traceparent):
        raise InvalidRequest(
            "traceparent must have the form of W3C trace context: 00-TRACE-SPAN-FLAGS in hexadecimal digits"
        )
    return Timing(
        priority=request.priority,
        # What has come needs no waiting for.
        not_before_ms=not_before_ms if not_before_ms is not None and not_before_ms > now_ms else None,
        deadline_ms=deadline_ms,
        traceparent=request.traceparent,
    )


def _ms(name: str, at: datetime | None) -> int | None:
    if at is None:
        return None
    if at.tzinfo is None:
        raise InvalidRequest(f"{name} must name its time zone, as in 2026-01-31T12:00:00Z")
    return int(at.timestamp() * 1000)


def _first(error: ValidationError) -> str:
    detail = error.errors()[0]
    place = ".".join(str(part) for part in detail["loc"])
    return f"{place}: {detail['msg']}" if place else detail["msg"]


def _same(known: JobRow, spec: JobSpec) -> str:
    if known.spec_digest != digest(spec.model_dump(mode="json")):
        raise InvalidRequest(
            f"job {spec.job_id} exists with another content: use a new job id, or repeat the same request"
        )
    return spec.job_id


def enter(
    tx: Transaction,
    desk: Desk,
    spec: JobSpec,
    *,
    adds_step: bool = False,
    timing: Timing = _AT_ONCE,
    progress_ms: int | None = None,
) -> JobRow:
    """Enter a job into the caller's transaction; it is ready at once, or when its time has come."""
    task_row = tx.tasks.get(spec.task_id, scope=EVERY_TENANT)
    if task_row is None and adds_step:
        raise NotFound(f"there is no task {spec.task_id!r}: submit without --task to start a new one")
    if task_row is not None and task_row.state.tenant_id != spec.tenant_id:
        raise NotFound(f"there is no task {spec.task_id!r}: submit without --task to start a new one")
    row = task_row or TaskRow(state=TaskState(), created_ms=tx.now_ms, updated_ms=tx.now_ms)
    planned = _plan(row.state, spec)
    body = spec.model_dump(mode="json")
    submitted = job.decide(
        JobState(),
        SubmitJob(
            job_id=JobId(spec.job_id),
            task_id=TaskId(spec.task_id),
            step_id=StepId(spec.step_id),
            tenant_id=TenantId(spec.tenant_id),
            spec_digest=digest(body),
            max_attempts=desk.rules.max_attempts,
            model=spec.driver.model if isinstance(spec.driver, ModelDriver) else "",
            sub_model=spec.sub_model,
            timing=timing,
        ),
    )
    events: list[Event] = [*planned, *submitted]
    apply_task(tx, desk, row=row, events=events, actor=f"tenant:{spec.tenant_id}")
    entered = JobRow(
        state=reduce(job.evolve, submitted, JobState()),
        spec_digest=digest(body),
        account=Account(limits=limits_of(spec.budget)),
        tools=" ".join(tools_of(spec)),
        progress_ms=progress_ms,
        created_ms=tx.now_ms,
        updated_ms=tx.now_ms,
    )
    tx.jobs.add(entered, spec=spec.model_dump_json(), terms=terms_of(spec))
    return entered


def tools_of(spec: JobSpec) -> tuple[str, ...]:
    """What a job may do beyond computing and asking: kill switches look for these names."""
    return (*spec.allowed_tools, *(("network",) if spec.network_policy.allow else ()))


def _plan(state: TaskState, spec: JobSpec) -> list[TaskEvent]:
    step = PlannedStep(step_id=StepId(spec.step_id))
    first: TaskCommand = (
        AddStep(step=step)
        if state.task_id
        else CreateTask(
            task_id=TaskId(spec.task_id), tenant_id=TenantId(spec.tenant_id), goal=spec.task, steps=(step,)
        )
    )
    planned = task.decide(state, first)
    start = StartStep(step_id=step.step_id, job_id=JobId(spec.job_id))
    return [*planned, *task.decide(reduce(task.evolve, planned, state), start)]
