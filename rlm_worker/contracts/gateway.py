"""The worker's way back: claim, renew, record, settle. Every write names the fence of its lease."""

from typing import Annotated, Literal, Protocol, Self

from pydantic import AwareDatetime, Field, JsonValue, model_validator

from rlm_worker.contracts.base import PROTOCOL_VERSION, Contract, Count, Name, Positive, Sha256
from rlm_worker.contracts.job import Budget, JobSpec
from rlm_worker.contracts.limits import ParkReason
from rlm_worker.contracts.result import JobResult
from rlm_worker.contracts.trace import GENESIS, TraceRecord

#: What an operator wants of a job; what it does is its state.
Desired = Literal["run", "pause", "stop", "kill"]

JOBS_QUEUE = "custody.jobs"
RUN_JOB = "run_job"


class WakeUp(Contract):
    """The whole body of a queue message. Nothing depends on its arrival."""

    job_id: Name
    generation: Count


class Lease(Contract):
    """The right to work on a job until it is not renewed in time."""

    job_id: Name
    attempt: Count
    fence: Positive
    ttl_ms: Positive


class Steer(Contract):
    """An operator's instruction, delivered at the next iteration."""

    steer_id: int
    text: str


class PersonAnswer(Contract):
    """What a person answered to a question of the job, checked against its schema."""

    #: The ordinal of the question.
    question: Count
    value: JsonValue
    by: str
    answered_ms: Count


class Retune(Contract):
    """Limits that replace those a job has, for all that it does from now on."""

    version: Positive
    budget: Budget
    by: str = ""
    reason: str = ""


class ClaimRequest(Contract):
    protocol: int = PROTOCOL_VERSION
    worker_id: Name
    job_id: Name
    generation: Count


class Claimed(Contract):
    outcome: Literal["claimed"] = "claimed"
    spec: JobSpec
    lease: Lease
    #: Length and head of the job's trace so far; above zero means: resume.
    trace_events: Count = 0
    trace_head: Sha256 = GENESIS
    #: Wall time already used by earlier attempts.
    spent_wall_time_ms: Count = 0
    #: Answers of people to questions that the job has asked.
    answers: tuple[PersonAnswer, ...] = ()
    #: The latest change of its limits; None: they are those of the spec.
    retune: Retune | None = None


class NotClaimed(Contract):
    outcome: Literal["not_claimed"] = "not_claimed"
    reason: Literal[
        "unknown_job",
        "stale_generation",
        "not_ready",
        "leased",
        "stopped",
        "over_budget",
        "at_capacity",
        "switched_off",
        "protocol",
    ]
    detail: str = ""


ClaimAnswer = Annotated[Claimed | NotClaimed, Field(discriminator="outcome")]


class RenewRequest(Contract):
    job_id: Name
    fence: Positive
    #: Last steer the worker has taken up, so that it is not sent again.
    steer_seen: int = 0
    #: Version of the limits the worker works under; 0: those of the spec.
    budget_seen: Count = 0


class RenewAnswer(Contract):
    desired: Desired
    reason: str = ""
    steers: tuple[Steer, ...] = ()
    ttl_ms: Positive
    #: Limits newer than those the worker works under.
    retune: Retune | None = None


class RecordRequest(Contract):
    job_id: Name
    fence: Positive
    records: tuple[TraceRecord, ...]


class RecordAnswer(Contract):
    events: Count
    head: Sha256


class SettleRequest(Contract):
    job_id: Name
    fence: Positive
    result: JobResult


class SettleAnswer(Contract):
    accepted: bool
    receipt_id: str = ""


class ParkRequest(Contract):
    """Let go of a job that has to wait. Every hold must be settled before; the trace is where it goes on."""

    job_id: Name
    fence: Positive
    reason: ParkReason
    detail: Annotated[str, Field(max_length=1_000)] = ""
    #: When it becomes ready by itself; None means: only by a command.
    not_before: AwareDatetime | None = None

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if self.reason == "rate_limited" and self.not_before is None:
            raise ValueError("a job that waits for a rate limit must say until when")
        return self


class ParkAnswer(Contract):
    #: False: a stop or a pause is in force, follow that order instead.
    parked: bool


class ReadTraceRequest(Contract):
    """A page of a job's trace, for resume."""

    job_id: Name
    fence: Positive
    after: Count = 0
    limit: Annotated[int, Field(gt=0, le=1_000)] = 500


class ReadTraceAnswer(Contract):
    records: tuple[TraceRecord, ...]
    more: bool


class AwaitOrdersRequest(Contract):
    """Long poll: answer as soon as something is wanted that differs from what the worker has seen."""

    job_id: Name
    fence: Positive
    seen: Desired = "run"
    steer_seen: int = 0
    budget_seen: Count = 0
    timeout_ms: Positive = 1_000


class GatewayRefused(Exception):
    """The control plane did not take a write."""


class LeaseLost(GatewayRefused):
    """The fence is stale or the lease has expired: write nothing more, kill the sandbox."""


class ChainRefused(GatewayRefused):
    """The records do not continue the job's trace."""


class HoldRefused(GatewayRefused):
    """The hold in these records would pass a limit of the job or of an ancestor."""


class GatewayDown(GatewayRefused):
    """The control plane could not be asked; whether a write arrived is unknown."""


class Gateway(Protocol):
    """What a worker may ask of the control plane. Synchronous; safe to call from several threads."""

    def claim(self, request: ClaimRequest) -> Claimed | NotClaimed: ...

    def renew(self, request: RenewRequest) -> RenewAnswer: ...

    def await_orders(self, request: AwaitOrdersRequest) -> RenewAnswer: ...

    def record(self, request: RecordRequest) -> RecordAnswer: ...

    def read_trace(self, request: ReadTraceRequest) -> ReadTraceAnswer: ...

    def settle(self, request: SettleRequest) -> SettleAnswer: ...

    def park(self, request: ParkRequest) -> ParkAnswer: ...
