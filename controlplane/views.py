"""What readers get to see of tasks and jobs: plain values for CLI, API and console. No behaviour, no store."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from rlm_worker.contracts.base import JsonObject
from rlm_worker.contracts.gateway import Desired
from rlm_worker.contracts.job import Budget, JobSpec
from rlm_worker.contracts.result import JobResult, Usage
from rlm_worker.contracts.trace import TraceRecord

JobStateName = Literal[
    "queued",
    "leased",
    "running",
    "held",
    "parked",
    "stopping",
    "succeeded",
    "partial",
    "failed",
    "stopped",
    "quarantined",
]
#: What a parked job waits for, in one word.
WaitReason = Literal["rate_limited", "asked", "budget", "scheduled"]
TERMINAL: frozenset[JobStateName] = frozenset({"succeeded", "partial", "failed", "stopped", "quarantined"})


def at(ms: int) -> datetime:
    """A time of the store, as people are told it."""
    return datetime.fromtimestamp(ms / 1000, tz=UTC)


@dataclass(frozen=True, kw_only=True)
class LeaseView:
    """Who works on a job."""

    worker_id: str
    fence: int
    attempt: int
    expires_at: datetime


@dataclass(frozen=True, kw_only=True)
class StopView:
    """How far a stop has come; each time is set once."""

    order: Literal["stop", "kill", "pause"]
    requested_at: datetime
    #: When the worker heard of it; None where nobody was at work.
    delivered_at: datetime | None = None
    observed_at: datetime | None = None
    by: str = ""
    verified_at: datetime | None = None
    #: Processes that may still be there; 0 stands for one whose number is not known.
    survivors: tuple[int, ...] = ()

    @property
    def is_proved(self) -> bool:
        return self.verified_at is not None and not self.survivors


@dataclass(frozen=True, kw_only=True)
class SwitchView:
    """A kill switch."""

    #: 0: it stands beside the database, which is held up, and is entered as soon as that is free.
    order_id: int
    scope_kind: Literal["all", "tenant", "task", "job", "tool", "model", "image"]
    scope_id: str
    #: Whose jobs it is limited to; empty: everybody's.
    tenant_id: str
    action: Literal["pause", "stop", "kill"]
    reason: str
    by: str
    at: datetime
    released_at: datetime | None = None
    released_by: str = ""
    released_reason: str = ""


@dataclass(frozen=True, kw_only=True)
class JobView:
    """One job as it stands."""

    job_id: str
    task_id: str
    tenant_id: str
    state: JobStateName
    desired: Desired
    generation: int
    attempts: int
    created_at: datetime
    updated_at: datetime
    spec: JobSpec
    usage: Usage
    trace_events: int
    trace_head: str
    lease: LeaseView | None = None
    stop: StopView | None = None
    result: JobResult | None = None
    receipt_id: str = ""
    #: Why nobody could take up a job that is ready, or what a parked one waits for.
    waiting_for: str = ""
    #: Jobs that share this one's past; told where one job is looked at.
    forks: tuple[str, ...] = ()
    #: What a parked job waits for, in one word.
    parked_for: WaitReason | None = None
    #: When a parked job becomes ready by itself.
    not_before: datetime | None = None
    priority: int = 0
    #: When it must have ended.
    deadline: datetime | None = None
    #: The limits that it works under now, when they are not those of its spec, and how often they were changed.
    budget: Budget | None = None
    budget_version: int = 0

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL


@dataclass(frozen=True, kw_only=True)
class JobPage:
    """A page of jobs, and what gives the next one."""

    items: tuple[JobView, ...]
    next: str | None


@dataclass(frozen=True, kw_only=True)
class QuestionView:
    """What a job wants to know of a person."""

    job_id: str
    question: int
    text: str
    schema: JsonObject
    asked_at: datetime
    until: datetime | None = None
    is_answered: bool = False


@dataclass(frozen=True, kw_only=True)
class WorkerView:
    """A process that works on jobs."""

    worker_id: str
    host: str
    #: Jobs of the common queue that it works on at once.
    slots: int
    image: str
    facts: JsonObject
    #: `silent`: it was not seen for a while and does not count.
    state: Literal["working", "draining", "silent", "gone"]
    is_draining: bool
    first_seen_at: datetime
    last_seen_at: datetime


@dataclass(frozen=True, kw_only=True)
class ReceiptView:
    """Proof of one act of the control plane."""

    receipt_id: str
    task_id: str
    seq: int
    kind: str
    at: datetime
    body: dict[str, object]
    hash: str


@dataclass(frozen=True, kw_only=True)
class TaskView:
    """One task as it stands."""

    task_id: str
    tenant_id: str
    goal: str
    status: str
    version: int
    created_at: datetime
    updated_at: datetime
    job_ids: tuple[str, ...] = ()
    receipts: tuple[ReceiptView, ...] = field(default=())


@dataclass(frozen=True, kw_only=True)
class FindingView:
    """What a watchdog found about a job, and what was done."""

    finding_id: str
    job_id: str
    tenant_id: str
    kind: str
    detail: str
    evidence: dict[str, object]
    action: Literal["warn", "pause", "stop", "kill", "quarantine"]
    at: datetime
    resolved_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class StateFigures:
    """Jobs in one state."""

    jobs: int
    oldest_seconds: float


@dataclass(frozen=True, kw_only=True)
class WorkerFigures:
    """A worker and how long nothing was heard of it."""

    worker_id: str
    host: str
    slots: int
    is_draining: bool
    silent_seconds: float
    jobs: int


@dataclass(frozen=True, kw_only=True)
class Monitors:
    """How things stand."""

    at: datetime
    jobs: dict[str, StateFigures]
    ended_last_hour: dict[str, int]
    #: Of those that ended in the last hour: failed and quarantined ones.
    failure_rate: float
    oldest_running_seconds: float
    oldest_waiting_seconds: float
    #: Jobs under way that lost a worker, and the most workers that one of them lost.
    jobs_retried: int
    most_retries: int
    queue_depth: int
    #: Told to who sees every tenant.
    workers: tuple[WorkerFigures, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CheckpointView:
    """The state of a task after its last fold."""

    seq: int
    state: dict[str, object]
    digest: str


@dataclass(frozen=True, kw_only=True)
class PendingCall:
    """A call that left and has no recorded outcome."""

    ordinal: int
    kind: str
    model: str
    #: What the same call is recognised by when it is asked again.
    key: str
    fence: int
    asked_at: datetime
    hold: dict[str, object]


@dataclass(frozen=True, kw_only=True)
class CaseView:
    """Everything about a job that an operator needs to decide what to do with it."""

    job: JobView
    checkpoint: CheckpointView | None
    step_id: str
    step_status: str
    task_status: str
    iteration: int
    last_event: TraceRecord | None
    pending: tuple[PendingCall, ...]
    #: The last outcome that was recorded.
    observed: TraceRecord | None
    findings: tuple[FindingView, ...]
    #: What can be done, in the words of the commands.
    choices: tuple[str, ...]
