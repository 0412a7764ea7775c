"""JobResult: the only thing, beside the trace, that a worker gives back."""

from decimal import Decimal
from typing import Literal, Self

from pydantic import Field, model_validator

from rlm_worker.contracts.base import PROTOCOL_VERSION, Contract, Count, JsonObject, Name, Sha256
from rlm_worker.contracts.job import Dimension

Status = Literal["succeeded", "partial", "failed", "stopped"]

FailureClass = Literal[
    "invalid_request",
    "budget_exhausted",
    "backend_unavailable",
    "sandbox_fatal",
    "tool_policy_denied",
    "output_invalid",
    "model_error",
    "partial_success",
    "stopped",
    "quarantined",
]

#: How the structured output came about.
AnsweredBy = Literal["submit", "draft", "extracted", "operator", "nobody"]


class ModelUsage(Contract):
    """What one model was used for in a job."""

    calls: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_input_tokens: Count = 0
    cost_usd: Decimal | None = Decimal(0)


class Usage(Contract):
    """Exact spend of a job: every call that left, answered or not."""

    iterations: Count = 0
    subcalls: Count = 0
    answered_from_journal: Count = 0
    host_calls: Count = 0
    depth: Count = 0
    wall_time_ms: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost_usd: Decimal | None = Decimal(0)
    output_bytes: Count = 0
    sandbox_cpu_ms: Count = 0
    sandbox_memory_bytes: Count = 0
    #: Times the conversation of a REPL started anew.
    rollovers: Count = 0
    by_model: dict[str, ModelUsage] = Field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class TraceRef(Contract):
    """Where the trace ends: its length and the hash that stands for all of it."""

    job_id: Name
    events: Count
    head: Sha256


class ArtifactRef(Contract):
    """A file the job made, by content."""

    path: str
    digest: Sha256
    size_bytes: Count


class CitationReport(Contract):
    """How many citation addresses of the answer exist in the evidence, and how many quotes stand at theirs."""

    checked: Count = 0
    verified: Count = 0
    missing: tuple[str, ...] = ()
    quotes_checked: Count = 0
    quotes_verified: Count = 0
    #: Addresses at which the quote beside them does not stand.
    misquoted: tuple[str, ...] = ()


class Proposal(Contract):
    """Something the job suggests and only the control plane may enter."""

    kind: Literal["note", "effect", "memory"]
    body: JsonObject
    trust: Literal["untrusted", "trusted"] = "untrusted"


class JobResult(Contract):
    """How a job ended."""

    protocol: Literal[1, 2] = PROTOCOL_VERSION
    job_id: Name
    attempt: Count
    status: Status
    structured_output: JsonObject | None = None
    answered_by: AnsweredBy = "nobody"
    failure_class: FailureClass | None = None
    #: The budget dimension that ended the job, when one did.
    limit: Dimension | None = None
    message: str = ""
    trace_ref: TraceRef
    artifact_refs: tuple[ArtifactRef, ...] = ()
    usage: Usage = Usage()
    citations: CitationReport = CitationReport()
    proposals: tuple[Proposal, ...] = ()
    models: dict[str, str] = Field(default_factory=dict)
    stdout_summary: str = ""
    stderr_summary: str = ""
    #: Of what the answer was made: untrusted evidence makes an untrusted answer.
    trust: Literal["untrusted", "trusted"] = "untrusted"

    @model_validator(mode="after")
    def _labelled(self) -> Self:
        if self.status == "succeeded" and (self.structured_output is None or self.failure_class is not None):
            raise ValueError("a succeeded job has an output and no failure class")
        if (self.status == "partial") != (self.failure_class == "partial_success"):
            raise ValueError("a partial result, and no other, is labelled partial_success")
        if self.status == "partial" and self.structured_output is None:
            raise ValueError("a partial result has an output")
        if self.status in ("failed", "stopped") and self.failure_class is None:
            raise ValueError(f"a {self.status} job names its failure class")
        if (self.structured_output is None) != (self.answered_by == "nobody"):
            raise ValueError("an output says who answered, and nobody answered when there is none")
        return self
