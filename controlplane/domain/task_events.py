"""What has happened to a task: past tense, folded by task.evolve, stored with the version they had."""

from dataclasses import dataclass
from typing import ClassVar, Literal

EndStatus = Literal["succeeded", "partial", "failed", "stopped", "quarantined"]


@dataclass(frozen=True, kw_only=True)
class TaskCreated:
    kind: ClassVar = "task_created"
    task_id: str
    tenant_id: str
    goal: str


@dataclass(frozen=True, kw_only=True)
class StepPlanned:
    kind: ClassVar = "step_planned"
    step_id: str
    step_kind: str


@dataclass(frozen=True, kw_only=True)
class StepStarted:
    kind: ClassVar = "step_started"
    step_id: str
    job_id: str


@dataclass(frozen=True, kw_only=True)
class StepCompleted:
    kind: ClassVar = "step_completed"
    step_id: str


@dataclass(frozen=True, kw_only=True)
class StepFailed:
    kind: ClassVar = "step_failed"
    step_id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class StepReopened:
    """A step that failed is tried anew; its task is not over any more."""

    kind: ClassVar = "step_reopened"
    step_id: str
    job_id: str


@dataclass(frozen=True, kw_only=True)
class ResultFolded:
    """A result entered the task; the digests tie it to what was asked and to the trace."""

    kind: ClassVar = "result_folded"
    job_id: str
    step_id: str
    status: EndStatus
    spec_digest: str
    result_digest: str
    trace_events: int
    trace_head: str


@dataclass(frozen=True, kw_only=True)
class TaskCompleted:
    kind: ClassVar = "task_completed"


@dataclass(frozen=True, kw_only=True)
class TaskFailed:
    kind: ClassVar = "task_failed"
    reason: str


@dataclass(frozen=True, kw_only=True)
class TaskCancelled:
    kind: ClassVar = "task_cancelled"
    reason: str


@dataclass(frozen=True, kw_only=True)
class CheckpointSaved:
    kind: ClassVar = "checkpoint_saved"
    digest: str


@dataclass(frozen=True, kw_only=True)
class TaskRebuilt:
    """Rows that differed from the events were written anew."""

    kind: ClassVar = "task_rebuilt"
    by: str
    differences: tuple[str, ...]


TaskEvent = (
    TaskCreated
    | StepPlanned
    | StepStarted
    | StepCompleted
    | StepFailed
    | StepReopened
    | ResultFolded
    | TaskCompleted
    | TaskFailed
    | TaskCancelled
    | CheckpointSaved
    | TaskRebuilt
)
