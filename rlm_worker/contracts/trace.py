"""The trace: one event per act of a job, chained by hash, complete enough to run the job again without a model."""

import hashlib
from decimal import ROUND_CEILING, Decimal
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, JsonValue, TypeAdapter

from rlm_worker.contracts.base import Contract, Count, JsonObject, Name, Sha256, canonical
from rlm_worker.contracts.base import Event as Event  # noqa: PLC0414 - one place for all events
from rlm_worker.contracts.course import NoProgress as NoProgress  # noqa: PLC0414 - one place for all events
from rlm_worker.contracts.course import RolledOver as RolledOver  # noqa: PLC0414 - one place for all events
from rlm_worker.contracts.job import Dimension
from rlm_worker.contracts.keeping import KeptEvent
from rlm_worker.contracts.limits import LimitEvent
from rlm_worker.contracts.result import AnsweredBy, ArtifactRef, FailureClass, Proposal, Status

GENESIS = "0" * 64

_NANO = Decimal("1e-9")


def _whole_nanos(cost: Decimal) -> Decimal:
    """Rounded up, so that the worker and the control plane add up the same figures."""
    rounded = cost.quantize(_NANO, rounding=ROUND_CEILING)
    return cost if rounded == cost else rounded


#: Dollars, in whole nano-dollars.
Usd = Annotated[Decimal, AfterValidator(_whole_nanos)]


class Hold(Contract):
    """What a call may cost at most, set aside before it leaves."""

    subcalls: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost_usd: Usd | None = Decimal(0)


class Spend(Contract):
    """What a call did cost."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_input_tokens: Count = 0
    cost_usd: Usd | None = Decimal(0)


class AttemptStarted(Event):
    kind: Literal["attempt_started"] = "attempt_started"
    attempt: Count
    worker_id: str
    #: Iterations taken over from the journal of earlier attempts.
    resumed_iterations: Count = 0
    versions: dict[str, str] = Field(default_factory=dict)
    #: Of the spec that the attempt works on: the chain holds what was asked, too.
    spec_digest: str = ""


class SandboxOpened(Event):
    kind: Literal["sandbox_opened"] = "sandbox_opened"
    backend: str
    layers: tuple[str, ...]
    reason: Literal["start", "resume", "state_lost"] = "start"


class EvidenceSealed(Event):
    """Content hashes of the evidence, taken while the job ran."""

    kind: Literal["evidence_sealed"] = "evidence_sealed"
    name: str
    content_digest: Sha256
    changed: bool = False


class ModelAsked(Event):
    """A turn was asked of the root model; the hold is durable before the request leaves."""

    kind: Literal["model_asked"] = "model_asked"
    iteration: Count
    #: Unique in the job: holds and spends are matched by it, for turns and subcalls alike.
    ordinal: Count
    model: str
    prompt_digest: Sha256
    hold: Hold
    #: How the answer was to be drawn; None: as the model does by itself. A server that takes neither is asked without.
    temperature: float | None = None
    top_p: float | None = None


class ModelAnswered(Event):
    kind: Literal["model_answered"] = "model_answered"
    iteration: Count
    ordinal: Count
    model: str
    text: str
    spend: Spend
    ok: bool = True
    error: str = ""


class CellProposed(Event):
    """The code of an iteration, before it runs."""

    kind: Literal["cell_proposed"] = "cell_proposed"
    iteration: Count
    driver: Literal["model", "playbook", "recording"]
    reasoning: str = ""
    code: str


class CellRejected(Event):
    """A turn without a usable cell."""

    kind: Literal["cell_rejected"] = "cell_rejected"
    iteration: Count
    reason: str


class CellFinished(Event):
    kind: Literal["cell_finished"] = "cell_finished"
    iteration: Count
    outcome: Literal["ok", "error", "ended", "timed_out", "interrupted", "crashed", "violation"]
    stdout: str
    stderr: str
    stdout_bytes: Count
    stderr_bytes: Count
    error_type: str = ""
    error_message: str = ""
    error_line: Count | None = None
    traceback: str = ""
    state_lost: bool = False
    cpu_ms: Count = 0
    memory_bytes: Count = 0
    #: Digest of what a replay must reproduce: outcome, output, error.
    digest: Sha256
    #: A digest of each variable that the cell changed, empty where it is gone. None: they were not looked at.
    variables: dict[str, str] | None = None


class SubcallStarted(Event):
    """One predict() left; `key` is the digest of (signature, inputs, instructions, model)."""

    kind: Literal["subcall_started"] = "subcall_started"
    iteration: Count
    ordinal: Count
    key: Sha256
    model: str
    signature: JsonValue
    inputs: JsonObject
    instructions: str = ""
    hold: Hold
    #: Digests of the pages that were cut out of documents for this call, in the order of its inputs.
    cut_pages: tuple[Sha256, ...] = ()


class SubcallFinished(Event):
    kind: Literal["subcall_finished"] = "subcall_finished"
    iteration: Count
    ordinal: Count
    key: Sha256
    model: str
    ok: bool
    value: JsonValue = None
    probability: float | None = None
    error_class: str = ""
    error: str = ""
    requests: Count = 1
    spend: Spend
    duration_ms: Count = 0


class SubcallLost(Event):
    """A call left and its outcome is unknown: the hold is charged."""

    kind: Literal["subcall_lost"] = "subcall_lost"
    ordinal: Count
    key: Sha256
    charged: Hold


class ChildStarted(Event):
    """A child rlm_query began, with a budget carved from this job's."""

    kind: Literal["child_started"] = "child_started"
    iteration: Count
    ordinal: Count
    key: Sha256
    child_id: Name
    task: str
    request: JsonObject


class ChildFinished(Event):
    kind: Literal["child_finished"] = "child_finished"
    iteration: Count
    ordinal: Count
    key: Sha256
    child_id: Name
    ok: bool
    value: JsonValue = None
    error: str = ""


class HostCallFinished(Event):
    """A host call other than a subcall was answered (budget, draft, note, tools)."""

    kind: Literal["host_call_finished"] = "host_call_finished"
    iteration: Count
    ordinal: Count
    name: str
    payload_digest: Sha256
    #: What was asked, where that is not plain from the cell: method, url, headers and body of a request.
    request: JsonObject | None = None
    answer: JsonValue = None
    ok: bool = True
    error: str = ""


class PolicyDenied(Event):
    kind: Literal["policy_denied"] = "policy_denied"
    iteration: Count
    what: str
    reason: str


class DraftRecorded(Event):
    kind: Literal["draft_recorded"] = "draft_recorded"
    iteration: Count
    fields: JsonObject


class ProposalMade(Event):
    kind: Literal["proposal_made"] = "proposal_made"
    iteration: Count
    proposal: Proposal


class SubmitRejected(Event):
    kind: Literal["submit_rejected"] = "submit_rejected"
    iteration: Count
    fields: JsonObject
    errors: tuple[str, ...]


class SubmitAccepted(Event):
    kind: Literal["submit_accepted"] = "submit_accepted"
    iteration: Count
    fields: JsonObject


class BudgetExhausted(Event):
    kind: Literal["budget_exhausted"] = "budget_exhausted"
    dimension: Dimension
    limit: str
    spent: str
    detail: str = ""


class SteerObserved(Event):
    kind: Literal["steer_observed"] = "steer_observed"
    iteration: Count
    steer_id: int
    text: str


class StopObserved(Event):
    """A stop or kill order reached the worker."""

    kind: Literal["stop_observed"] = "stop_observed"
    order: Literal["stop", "kill", "pause"]
    detail: str = ""
    #: Since the order was heard, until this was written.
    waited_ms: Count = 0


class StopVerified(Event):
    """Nothing of the job runs any more."""

    kind: Literal["stop_verified"] = "stop_verified"
    kill_ms: Count
    survivors: tuple[int, ...] = ()


class ArtifactsCollected(Event):
    """What the job left in its workspace and was asked for; the first of what was left out, with the reason."""

    kind: Literal["artifacts_collected"] = "artifacts_collected"
    artifacts: tuple[ArtifactRef, ...] = ()
    skipped: tuple[str, ...] = ()
    skipped_total: Count = 0


class AttemptEnded(Event):
    kind: Literal["attempt_ended"] = "attempt_ended"
    attempt: Count
    status: Status
    answered_by: AnsweredBy
    failure_class: FailureClass | None = None
    message: str = ""


TraceEvent = Annotated[
    AttemptStarted
    | SandboxOpened
    | EvidenceSealed
    | ModelAsked
    | ModelAnswered
    | CellProposed
    | CellRejected
    | CellFinished
    | SubcallStarted
    | SubcallFinished
    | SubcallLost
    | ChildStarted
    | ChildFinished
    | HostCallFinished
    | PolicyDenied
    | DraftRecorded
    | ProposalMade
    | SubmitRejected
    | SubmitAccepted
    | BudgetExhausted
    | NoProgress
    | RolledOver
    | SteerObserved
    | StopObserved
    | StopVerified
    | ArtifactsCollected
    | AttemptEnded
    | KeptEvent
    | LimitEvent,
    Field(discriminator="kind"),
]

_EVENT: TypeAdapter[TraceEvent] = TypeAdapter(TraceEvent)

EVENT_KINDS: tuple[str, ...] = tuple(
    variant.model_fields["kind"].default for variant in get_args(get_args(TraceEvent)[0])
)


class TraceRecord(Contract):
    """One link of the chain. The event stays JSON here, so that a chain of any version can be checked."""

    seq: Count
    at_ms: Count
    event: JsonObject
    prev: Sha256
    hash: Sha256

    def typed(self) -> TraceEvent:
        return _EVENT.validate_python(self.event)

    @property
    def kind(self) -> str:
        return str(self.event["kind"])


def link_hash(*, seq: int, at_ms: int, event: JsonObject, prev: str) -> str:
    """Hash of one link: everything in it, and through `prev` everything before it."""
    return hashlib.sha256(canonical([seq, at_ms, event, prev])).hexdigest()


def link(event: TraceEvent, *, seq: int, at_ms: int, prev: str) -> TraceRecord:
    """Append an event to a chain that ends in `prev`."""
    body = event.model_dump(mode="json")
    return TraceRecord.made(
        seq=seq,
        at_ms=at_ms,
        event=body,
        prev=prev,
        hash=link_hash(seq=seq, at_ms=at_ms, event=body, prev=prev),
    )


class BrokenChain(ValueError):
    """The trace was changed, cut or reordered."""

    def __init__(self, seq: int, reason: str) -> None:
        super().__init__(f"trace event {seq}: {reason}")
        self.seq = seq
        self.reason = reason


def check_link(record: TraceRecord, *, seq: int, prev: str) -> None:
    """Refuse a record that does not follow `prev` at `seq`, or whose hash is not its own."""
    if record.seq != seq:
        raise BrokenChain(seq, f"expected sequence number {seq}, found {record.seq}")
    if record.prev != prev:
        raise BrokenChain(seq, "its link to the event before it does not match")
    if record.hash != link_hash(seq=record.seq, at_ms=record.at_ms, event=record.event, prev=record.prev):
        raise BrokenChain(seq, "its content does not match its hash")
