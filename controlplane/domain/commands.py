"""What can be asked of a task or a job: imperative values. They carry their time and ids, so that deciding is pure."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from controlplane.domain.ids import Fence, JobId, StepId, TaskId, TenantId
from rlm_worker.contracts import Budget, EvidenceRef, JsonObject
from rlm_worker.contracts.job import ArtifactPolicy, Driver, ForkPoint, NetworkPolicy, SandboxPolicy
from rlm_worker.contracts.limits import ParkReason
from rlm_worker.contracts.result import FailureClass, Status

Order = Literal["pause", "stop", "kill"]


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """Everything of a JobSpec but its ids. Name `job_id` to make a repeated submit harmless."""

    task: str
    output_schema: JsonObject
    budget: Budget
    driver: Driver
    sub_model: str
    input_artifacts: tuple[EvidenceRef, ...] = ()
    params: JsonObject = field(default_factory=dict)
    allowed_tools: tuple[str, ...] = ()
    sandbox_policy: SandboxPolicy = field(default_factory=SandboxPolicy)
    network_policy: NetworkPolicy = field(default_factory=NetworkPolicy)
    artifact_policy: ArtifactPolicy = field(default_factory=ArtifactPolicy)
    labels: dict[str, str] = field(default_factory=dict)
    #: Whose past the job shares; `fork` makes such requests.
    fork: ForkPoint | None = None
    #: What reaching a limit does: end the job, or park it until somebody raises the limit.
    on_limit: Literal["end", "ask"] = "end"
    #: Time without a record after which the job counts as stuck; None: what the settings say.
    progress_seconds: float | None = None
    #: Owner of the job; None means the tenant of the settings.
    tenant_id: str | None = None
    #: Task to which the job is added as a further analyze step; None makes a task for it.
    task_id: str | None = None
    job_id: str | None = None
    #: Higher goes first.
    priority: int = 0
    #: It does not start before this time.
    not_before: datetime | None = None
    #: When it must have ended.
    deadline: datetime | None = None
    #: W3C trace context of whoever asks; empty: the job begins one of its own.
    traceparent: str = ""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """When a job may start and must end, and before which others; no part of what it is asked."""

    priority: int = 0
    not_before_ms: int | None = None
    deadline_ms: int | None = None
    traceparent: str = ""


@dataclass(frozen=True, kw_only=True)
class PlannedStep:
    step_id: StepId
    kind: Literal["analyze"] = "analyze"


@dataclass(frozen=True, kw_only=True)
class CreateTask:
    task_id: TaskId
    tenant_id: TenantId
    goal: str
    steps: tuple[PlannedStep, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AddStep:
    step: PlannedStep


@dataclass(frozen=True, kw_only=True)
class StartStep:
    step_id: StepId
    job_id: JobId


@dataclass(frozen=True, kw_only=True)
class FoldResult:
    """Enter how a job ended into the task, once."""

    step_id: StepId
    job_id: JobId
    status: Literal["succeeded", "partial", "failed", "stopped", "quarantined"]
    spec_digest: str
    result_digest: str
    trace_events: int
    trace_head: str


@dataclass(frozen=True, kw_only=True)
class ReopenStep:
    """The job of a step that failed is tried anew, or answered by hand."""

    step_id: StepId
    job_id: JobId


TaskCommand = CreateTask | AddStep | StartStep | FoldResult | ReopenStep


@dataclass(frozen=True, kw_only=True)
class SubmitJob:
    job_id: JobId
    task_id: TaskId
    step_id: StepId
    tenant_id: TenantId
    spec_digest: str
    max_attempts: int
    #: Who writes the cells (empty: a playbook) and who answers predict().
    model: str = ""
    sub_model: str = ""
    timing: Timing = field(default_factory=Timing)


@dataclass(frozen=True, kw_only=True)
class ClaimJob:
    worker_id: str
    generation: int


@dataclass(frozen=True, kw_only=True)
class GiveUpJob:
    """Nobody can ever start the job."""

    failure_class: FailureClass


@dataclass(frozen=True, kw_only=True)
class StartJob:
    """The worker wrote for the first time under its lease."""

    fence: Fence


@dataclass(frozen=True, kw_only=True)
class LoseLease:
    """The holder of the lease is gone, or did not renew in time."""

    fence: Fence
    reason: str
    at_ms: int
    #: Its process, unless that is provably not there any more.
    survivors: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class HandBack:
    """The holder lets go of a job that is not finished, because its process ends."""

    fence: Fence


@dataclass(frozen=True, kw_only=True)
class ParkJob:
    """The holder lets go of a job that has to wait for something outside."""

    fence: Fence
    reason: ParkReason
    detail: str = ""
    not_before_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class UnparkJob:
    """What a parked job waited for is there."""

    by: str


@dataclass(frozen=True, kw_only=True)
class OrderStop:
    order: Order
    by: str
    reason: str
    at_ms: int


@dataclass(frozen=True, kw_only=True)
class ObserveStop:
    fence: Fence
    at_ms: int
    #: When the worker had heard of it.
    delivered_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class VerifyStop:
    fence: Fence
    at_ms: int
    survivors: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ResumeJob:
    by: str


@dataclass(frozen=True, kw_only=True)
class RetuneJob:
    """Work under other limits from now on."""

    budget: Budget
    by: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class RetryJob:
    """An operator lets a job that failed, or was quarantined, be tried anew from its record."""

    by: str
    reason: str
    max_attempts: int


@dataclass(frozen=True, kw_only=True)
class CompleteJob:
    """An operator gives the answer that the job did not give."""

    result_digest: str
    by: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class QuarantineJob:
    """Take the job out of circulation, whoever has it."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class ReportStuck:
    """A watchdog found the job stuck."""

    finding_id: str
    condition: str
    detail: str
    action: str


@dataclass(frozen=True, kw_only=True)
class SteerJob:
    steer_id: int
    text: str
    by: str


@dataclass(frozen=True, kw_only=True)
class AnswerJob:
    """A person answers what the job asked."""

    question: int
    answer_digest: str
    by: str


@dataclass(frozen=True, kw_only=True)
class ForkJob:
    """Another job shares this one's past, up to an iteration."""

    fork_job_id: JobId
    at: int
    by: str


@dataclass(frozen=True, kw_only=True)
class ImportJob:
    """A job that ran in another home is entered here as it ended there."""

    status: Status
    failure_class: FailureClass | None
    result_digest: str
    by: str


@dataclass(frozen=True, kw_only=True)
class SettleJob:
    fence: Fence
    status: Status
    failure_class: FailureClass | None
    result_digest: str


@dataclass(frozen=True, kw_only=True)
class RejectLateWrite:
    """Keep, as evidence, that a stale fence tried to write."""

    fence: Fence
    what: Literal["record", "settle", "park"]


JobCommand = (
    SubmitJob
    | ClaimJob
    | GiveUpJob
    | StartJob
    | LoseLease
    | HandBack
    | ParkJob
    | UnparkJob
    | OrderStop
    | ObserveStop
    | VerifyStop
    | ResumeJob
    | RetuneJob
    | RetryJob
    | CompleteJob
    | QuarantineJob
    | ReportStuck
    | SteerJob
    | AnswerJob
    | ForkJob
    | ImportJob
    | SettleJob
    | RejectLateWrite
)
