"""A task: a goal and a plan of steps. decide answers a command with events, evolve folds one; neither does anything else."""

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Literal, assert_never

from controlplane.domain.commands import (
    AddStep,
    CreateTask,
    FoldResult,
    ReopenStep,
    StartStep,
    TaskCommand,
)
from controlplane.domain.task_events import (
    CheckpointSaved,
    ResultFolded,
    StepCompleted,
    StepFailed,
    StepPlanned,
    StepReopened,
    StepStarted,
    TaskCancelled,
    TaskCompleted,
    TaskCreated,
    TaskEvent,
    TaskFailed,
    TaskRebuilt,
)
from controlplane.errors import InvalidRequest

TaskStatus = Literal["running", "completed", "failed", "cancelled"]
StepStatus = Literal["planned", "started", "completed", "failed"]


@dataclass(frozen=True, kw_only=True)
class Step:
    step_id: str
    kind: str
    status: StepStatus = "planned"
    job_id: str = ""


@dataclass(frozen=True, kw_only=True)
class TaskState:
    task_id: str = ""
    tenant_id: str = ""
    goal: str = ""
    status: TaskStatus = "running"
    steps: tuple[Step, ...] = ()
    #: Jobs whose result is in, in the order of folding.
    folded: tuple[str, ...] = ()

    @property
    def is_terminal(self) -> bool:
        return self.status != "running"

    def step(self, step_id: str) -> Step:
        found = next((step for step in self.steps if step.step_id == step_id), None)
        if found is None:
            raise InvalidRequest(f"task {self.task_id} has no step {step_id!r}")
        return found


def snapshot(state: TaskState) -> dict[str, Any]:
    """The whole state as JSON."""
    return {**vars(state), "steps": [dict(vars(step)) for step in state.steps], "folded": list(state.folded)}


def from_snapshot(body: dict[str, Any]) -> TaskState:
    """The state that was taken down."""
    steps = tuple(Step(**step) for step in body["steps"])
    return TaskState(**{**body, "steps": steps, "folded": tuple(body["folded"])})


def decide(state: TaskState, command: TaskCommand) -> list[TaskEvent]:
    """Answer a command with the events it causes; an empty list means: already so."""
    match command:
        case CreateTask():
            return _create(state, command)
        case AddStep():
            _refuse_when_over(state)
            return [StepPlanned(step_id=command.step.step_id, step_kind=command.step.kind)]
        case StartStep():
            _refuse_when_over(state)
            state.step(command.step_id)
            return [StepStarted(step_id=command.step_id, job_id=command.job_id)]
        case FoldResult():
            return _fold(state, command)
        case ReopenStep():
            state.step(command.step_id)
            return [StepReopened(step_id=command.step_id, job_id=command.job_id)]
        case _:
            assert_never(command)


def _create(state: TaskState, command: CreateTask) -> list[TaskEvent]:
    if state.task_id:
        return []
    created = TaskCreated(task_id=command.task_id, tenant_id=command.tenant_id, goal=command.goal)
    return [created, *(StepPlanned(step_id=step.step_id, step_kind=step.kind) for step in command.steps)]


def _refuse_when_over(state: TaskState) -> None:
    if state.is_terminal:
        raise InvalidRequest(
            f"task {state.task_id} is {state.status}: submit without --task to start a new one"
        )


def _fold(state: TaskState, command: FoldResult) -> list[TaskEvent]:
    if command.job_id in state.folded:
        return []
    folded = ResultFolded(
        job_id=command.job_id,
        step_id=command.step_id,
        status=command.status,
        spec_digest=command.spec_digest,
        result_digest=command.result_digest,
        trace_events=command.trace_events,
        trace_head=command.trace_head,
    )
    if state.is_terminal:
        return [folded]
    if command.status in ("succeeded", "partial"):
        events: list[TaskEvent] = [folded, StepCompleted(step_id=command.step_id)]
    else:
        events = [folded, StepFailed(step_id=command.step_id, reason=command.status)]
    return [*events, *_ending(reduce(evolve, events, state), command)]


def _ending(state: TaskState, command: FoldResult) -> list[TaskEvent]:
    if command.status == "stopped":
        return [TaskCancelled(reason=f"job {command.job_id} was stopped")]
    if command.status in ("failed", "quarantined"):
        return [TaskFailed(reason=f"job {command.job_id} ended {command.status}")]
    if all(step.status == "completed" for step in state.steps):
        return [TaskCompleted()]
    return []


def evolve(state: TaskState, event: TaskEvent) -> TaskState:  # noqa: C901, PLR0911 - one line per event
    """Fold one event. Never fails, never decides."""
    match event:
        case TaskCreated():
            return replace(state, task_id=event.task_id, tenant_id=event.tenant_id, goal=event.goal)
        case StepPlanned():
            return replace(state, steps=(*state.steps, Step(step_id=event.step_id, kind=event.step_kind)))
        case StepStarted():
            return _with_step(state, event.step_id, status="started", job_id=event.job_id)
        case StepCompleted():
            return _with_step(state, event.step_id, status="completed")
        case StepFailed():
            return _with_step(state, event.step_id, status="failed")
        case StepReopened():
            return _reopened(state, event)
        case ResultFolded():
            return replace(state, folded=(*state.folded, event.job_id))
        case TaskCompleted():
            return replace(state, status="completed")
        case TaskFailed():
            return replace(state, status="failed")
        case TaskCancelled():
            return replace(state, status="cancelled")
        case CheckpointSaved() | TaskRebuilt():
            return state
        case _:
            assert_never(event)


def _reopened(state: TaskState, event: StepReopened) -> TaskState:
    """The result that is in does not count any more: the one that comes is folded in its place."""
    left = tuple(job_id for job_id in state.folded if job_id != event.job_id)
    return _with_step(replace(state, status="running", folded=left), event.step_id, status="started")


def _with_step(state: TaskState, step_id: str, *, status: StepStatus, job_id: str = "") -> TaskState:
    return replace(
        state,
        steps=tuple(
            replace(step, status=status, job_id=job_id or step.job_id) if step.step_id == step_id else step
            for step in state.steps
        ),
    )
