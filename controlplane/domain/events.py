"""What happened to tasks and jobs: past tense, frozen, the only thing their state is folded from."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, get_args

from controlplane.domain.task_events import TaskEvent
from controlplane.views import WaitReason
from rlm_worker.contracts.result import FailureClass


@dataclass(frozen=True, kw_only=True)
class JobSubmitted:
    kind: ClassVar = "job_submitted"
    job_id: str
    task_id: str
    step_id: str
    tenant_id: str
    spec_digest: str
    max_attempts: int
    # Jobs of earlier releases had none of these.
    model: str = ""
    sub_model: str = ""
    priority: int = 0
    deadline_ms: int | None = None
    traceparent: str = ""


@dataclass(frozen=True, kw_only=True)
class JobLeased:
    kind: ClassVar = "job_leased"
    job_id: str
    worker_id: str
    fence: int
    attempt: int


@dataclass(frozen=True, kw_only=True)
class JobStarted:
    kind: ClassVar = "job_started"
    job_id: str
    fence: int


@dataclass(frozen=True, kw_only=True)
class LeaseEnded:
    """A lease ended without a result."""

    kind: ClassVar = "lease_lost"
    job_id: str
    fence: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class LeaseReleased:
    """The holder gave its lease back; the job is none the worse for it."""

    kind: ClassVar = "lease_released"
    job_id: str
    fence: int


@dataclass(frozen=True, kw_only=True)
class JobRequeued:
    kind: ClassVar = "job_retry_scheduled"
    job_id: str
    generation: int


@dataclass(frozen=True, kw_only=True)
class JobQuarantined:
    kind: ClassVar = "job_dead_lettered"
    job_id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class StopRequested:
    kind: ClassVar = "job_stop_requested"
    job_id: str
    order: Literal["pause", "stop", "kill"]
    by: str
    reason: str
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class StopSeen:
    kind: ClassVar = "job_stop_observed"
    job_id: str
    at_ms: int
    delivered_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class StopProved:
    kind: ClassVar = "job_stop_verified"
    job_id: str
    at_ms: int
    survivors: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StopUnproved:
    """The job may not write any more, but what worked on it may still be there."""

    kind: ClassVar = "job_stop_unverified"
    job_id: str
    survivors: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class JobHeld:
    kind: ClassVar = "job_held"
    job_id: str


@dataclass(frozen=True, kw_only=True)
class JobParked:
    """The holder let go of the job until something outside is so; nothing of it is held meanwhile."""

    kind: ClassVar = "job_parked"
    job_id: str
    fence: int
    reason: WaitReason
    detail: str
    not_before_ms: int | None


@dataclass(frozen=True, kw_only=True)
class JobUnparked:
    kind: ClassVar = "job_unparked"
    job_id: str
    by: str
    generation: int


@dataclass(frozen=True, kw_only=True)
class JobResumed:
    kind: ClassVar = "job_resumed"
    job_id: str
    by: str
    generation: int


@dataclass(frozen=True, kw_only=True)
class PauseLifted:
    """The pause was called off before it was carried out: the job goes on as soon as it is."""

    kind: ClassVar = "job_pause_lifted"
    job_id: str
    by: str


@dataclass(frozen=True, kw_only=True)
class JobRetuned:
    kind: ClassVar = "job_retuned"
    job_id: str
    budget_version: int
    budget: dict[str, Any]
    by: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class JobRetried:
    kind: ClassVar = "job_retried"
    job_id: str
    generation: int
    by: str
    reason: str
    max_attempts: int


@dataclass(frozen=True, kw_only=True)
class JobCompleted:
    """A person gave the answer."""

    kind: ClassVar = "job_completed_by_hand"
    job_id: str
    result_digest: str
    by: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class JobStuck:
    kind: ClassVar = "job_stuck"
    job_id: str
    finding_id: str
    condition: str
    detail: str
    action: str


@dataclass(frozen=True, kw_only=True)
class JobSteered:
    kind: ClassVar = "job_steered"
    job_id: str
    steer_id: int
    text: str
    by: str


@dataclass(frozen=True, kw_only=True)
class JobAnswered:
    kind: ClassVar = "job_answered"
    job_id: str
    question: int
    answer_digest: str
    by: str


@dataclass(frozen=True, kw_only=True)
class JobForked:
    kind: ClassVar = "job_forked"
    job_id: str
    fork_job_id: str
    at: int
    by: str


@dataclass(frozen=True, kw_only=True)
class JobImported:
    """The job ran elsewhere: its trace and result were brought here whole."""

    kind: ClassVar = "job_imported"
    job_id: str
    by: str


@dataclass(frozen=True, kw_only=True)
class JobFinished:
    kind: ClassVar = "job_finished"
    job_id: str
    fence: int
    status: Literal["succeeded", "partial", "failed", "stopped"]
    failure_class: FailureClass | None
    result_digest: str


@dataclass(frozen=True, kw_only=True)
class LateWriteRejected:
    kind: ClassVar = "late_write_rejected"
    job_id: str
    fence: int
    what: str


JobEvent = (
    JobSubmitted
    | JobLeased
    | JobStarted
    | LeaseEnded
    | LeaseReleased
    | JobRequeued
    | JobQuarantined
    | StopRequested
    | StopSeen
    | StopProved
    | StopUnproved
    | JobHeld
    | JobParked
    | JobUnparked
    | JobResumed
    | PauseLifted
    | JobRetuned
    | JobRetried
    | JobCompleted
    | JobStuck
    | JobSteered
    | JobAnswered
    | JobForked
    | JobImported
    | JobFinished
    | LateWriteRejected
)
Event = TaskEvent | JobEvent

VERSION = 1
_KINDS: dict[str, type[Event]] = {variant.kind: variant for variant in get_args(Event)}


def to_json(event: Event) -> dict[str, Any]:
    """Event as JSON with its kind and version."""
    body = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(event).items()}
    return {"kind": event.kind, "version": VERSION, **body}


def from_json(body: dict[str, Any]) -> Event:
    """Event from its JSON. An unknown kind or version stops the reader: a state must not be folded without it."""
    variant = _KINDS.get(body.get("kind", ""))
    if variant is None or body.get("version") != VERSION:
        raise ValueError(
            f"event kind {body.get('kind')!r} version {body.get('version')!r} is unknown to this release"
        )
    # What an earlier release did not know has its default.
    given = {field.name: body[field.name] for field in fields(variant) if field.name in body}
    named: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }
    return variant(**named)
