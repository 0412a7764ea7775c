"""Submit: a request becomes a task (when none is named), a job and a wake-up, in one transaction."""

import json
from dataclasses import fields, replace
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
)
from controlplane.domain.events import Event, TaskEvent
from controlplane.domain.identity import EVERY_TENANT, Caller
from controlplane.domain.ids import JobId, StepId, TaskId, TenantId
from controlplane.domain.job_state import JobState
from controlplane.domain.task import TaskState
from controlplane.domain.terms import terms_of
from controlplane.errors import InvalidRequest, NotFound
from controlplane.handlers.apply import apply_task
from controlplane.handlers.permits import require
from controlplane.handlers.retrying import retried
from controlplane.ports import Desk, JobRow, TaskRow, Transaction
from controlplane.schemas import checker
from rlm_worker.contracts import JobSpec, digest
from rlm_worker.contracts.job import ModelDriver


@retried
def submit(desk: Desk, request: JobRequest, *, caller: Caller) -> str:
    """Enter a job and return its id. The same `job_id` with the same request again changes nothing."""
    tenant_id = request.tenant_id or caller.scope.tenant_id or desk.rules.default_tenant
    request = replace(request, tenant_id=tenant_id)
    _refuse_unpriced(desk, request)
    with desk.store.write() as tx:
        require(tx, caller, "job.submit", tenant_id=tenant_id)
        known = None if request.job_id is None else tx.jobs.get(request.job_id, scope=caller.scope)
        spec = _spec(desk, request, known=known)
        if known is not None:
            return _same(known, spec)
        enter(tx, desk, spec, adds_step=request.task_id is not None)
    desk.store.announce(spec.job_id)
    crash_here("submit.after_commit")
    return spec.job_id


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
        if field.name not in ("job_id", "task_id", "tenant_id")
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
    tx: Transaction, desk: Desk, spec: JobSpec, *, adds_step: bool = False, is_ready: bool = True
) -> JobRow:
    """Enter a job into the caller's transaction, with its wake-up when it is to be worked on."""
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
        ),
    )
    events: list[Event] = [*planned, *submitted]
    apply_task(tx, desk, row=row, events=events, actor=f"tenant:{spec.tenant_id}")
    entered = JobRow(
        state=reduce(job.evolve, submitted, JobState()),
        spec_digest=digest(body),
        account=Account(limits=limits_of(spec.budget)),
        created_ms=tx.now_ms,
        updated_ms=tx.now_ms,
    )
    tx.jobs.add(entered, spec=spec.model_dump_json(), terms=terms_of(spec))
    if is_ready:
        tx.outbox.add(spec.job_id, generation=entered.state.generation)
    return entered


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
