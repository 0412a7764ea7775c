"""Bodies of the API: what callers send and what they are answered. Pydantic only, so that a client can use them as they are. Orders, files and administration have modules of their own.

Requests refuse fields that are not known; answers may get more fields in later releases, and whoever reads them leaves those.
A text of a model or of evidence is either itself or a `Withheld` mark.
"""

import math
from datetime import datetime
from typing import Annotated, Generic, Literal, TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, model_validator

from controlplane.views import JobStateName, WaitReason
from rlm_worker.contracts import Budget, JsonObject
from rlm_worker.contracts.gateway import Desired
from rlm_worker.contracts.job import ModelDriver, PlaybookDriver
from rlm_worker.contracts.result import Usage

#: What a name in an address or in a body looks like: it never needs escaping.
Id = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@+-]*$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256, in hexadecimal digits.")]
Reason = Annotated[str, Field(max_length=2_000)]
#: Whole numbers that every database and every JSON parser holds.
MOST = 2**53 - 1
Whole = Annotated[int, Field(ge=0, le=MOST)]
#: Deeper values are nobody's parameters.
_DEEPEST = 100
Label = Annotated[str, Field(max_length=200, pattern=r"^[^\x00]*$")]

Item = TypeVar("Item")


class Request(BaseModel):
    """What a caller sends."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _can_be_kept(cls, given: object) -> object:
        """No store takes a zero character, half a surrogate pair or what is no number."""
        if isinstance(given, dict):
            _check_storable(given)
        return given


def _check_storable(given: object) -> None:
    waiting: list[tuple[object, int]] = [(given, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > _DEEPEST:
            raise ValueError(f"values are nested deeper than {_DEEPEST} levels")
        if isinstance(value, str):
            if "\x00" in value or (
                not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value)
            ):
                raise ValueError("a text holds a zero character or half a surrogate pair")
        elif isinstance(value, float) and not math.isfinite(value):
            raise ValueError("a number is not finite")
        elif isinstance(value, dict):
            waiting += [(item, depth + 1) for pair in value.items() for item in pair]
        elif isinstance(value, list | tuple):
            waiting += [(item, depth + 1) for item in value]


class Answer(BaseModel):
    """What a caller is answered."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Misfit(Answer):
    """One thing that is wrong with a request."""

    where: str
    what: str


class Problem(Answer):
    """Why a request was not carried out (RFC 9457)."""

    type: str
    title: str
    status: int
    #: What happened, to what.
    detail: str = ""
    #: The address that was asked.
    instance: str = ""
    #: The same in one word, for programs.
    code: str
    #: What to do next.
    hint: str = ""
    #: Of a defect: the id under which the log has the rest.
    error_id: str = ""
    errors: tuple[Misfit, ...] = ()


class Withheld(Answer):
    """Stands where a text of a model or of evidence would: ask with `content=true`, which needs `content.read`."""

    withheld: Literal[True] = True
    #: Of the text in UTF-8, or of the canonical JSON of a value.
    length_bytes: int
    sha256: str


Text = str | Withheld
#: A JSON value in which texts may be replaced by marks.
Content = JsonValue


class Page(Answer, Generic[Item]):
    """A part of a list; `next` is the cursor of the part after it, and null at the end."""

    items: tuple[Item, ...]
    next: str | None = None


_SUBMIT: dict[str, JsonValue] = {
    "task": "Which contracts end this year, and on which page is it said?",
    "output_schema": {
        "type": "object",
        "properties": {"answer": {"type": "string"}},
        "required": ["answer"],
    },
    "driver": {"kind": "model", "model": "openai:gpt-5"},
    "sub_model": "openai:gpt-5-mini",
    "budget": {"max_subcalls": 100, "max_tokens": 200_000},
    "labels": {"project": "contracts"},
}


class EvidenceUse(Request):
    """Evidence that the tenant has brought in."""

    digest: Digest


class SandboxWish(Request):
    """What a caller may ask of the sandbox; which one it is, the installation says."""

    language: Literal["open", "strict"] | None = None
    cell_seconds: Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)] | None = None
    memory_bytes: Annotated[int, Field(gt=0, le=MOST)] | None = None
    processes: Annotated[int, Field(gt=0, le=100_000)] | None = None
    workspace_bytes: Annotated[int, Field(gt=0, le=MOST)] | None = None


class Collect(Request):
    """What is kept of the files that a job makes."""

    collect: Annotated[tuple[Annotated[str, Field(max_length=1_000)], ...], Field(max_length=100)] = ()
    max_files: Annotated[int, Field(ge=0, le=10_000)] = 100
    max_bytes: Whole = 64 * 1024 * 1024


class SubmitRequest(Request):
    """A job to be done."""

    model_config = ConfigDict(json_schema_extra={"examples": [_SUBMIT]})

    task: Annotated[str, Field(min_length=1, max_length=100_000)]
    output_schema: JsonObject
    budget: Budget = Budget()
    #: Who writes the cells; the installation's model when it is left out.
    driver: Annotated[ModelDriver | PlaybookDriver, Field(discriminator="kind")] | None = None
    #: Who answers predict(); the installation's when it is left out.
    sub_model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    evidence: Annotated[tuple[EvidenceUse, ...], Field(max_length=1_000)] = ()
    params: JsonObject = Field(default_factory=dict)
    allowed_tools: Annotated[tuple[Id, ...], Field(max_length=100)] = ()
    sandbox: SandboxWish = SandboxWish()
    #: `host:port` that cells may reach.
    network: Annotated[tuple[Annotated[str, Field(max_length=300)], ...], Field(max_length=100)] = ()
    artifacts: Collect = Collect()
    labels: Annotated[dict[Label, Label], Field(max_length=50)] = Field(default_factory=dict)
    #: The task to which it is added as a further step; a new one when it is left out.
    task_id: Id | None = None
    #: Whose job it is, from callers who look after several tenants; one's own when it is left out.
    tenant_id: Id | None = None
    #: Higher goes first.
    priority: Annotated[int, Field(ge=-1_000, le=1_000)] = 0
    not_before: AwareDatetime | None = None
    deadline: AwareDatetime | None = None


class LeaseBody(Answer):
    worker_id: str
    attempt: int
    expires_at: datetime


class StopBody(Answer):
    """How far a stop has come."""

    order: Literal["stop", "kill", "pause"]
    requested_at: datetime
    observed_at: datetime | None = None
    verified_at: datetime | None = None
    survivors: tuple[int, ...] = ()


class JobItem(Answer):
    """A job in a list."""

    job_id: str
    task_id: str
    tenant_id: str
    state: JobStateName
    desired: Desired
    generation: int
    attempts: int
    priority: int = 0
    created_at: datetime
    updated_at: datetime
    deadline: datetime | None = None
    task: Text
    model: str = ""
    sub_model: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    usage: Usage
    trace_events: int
    waiting_for: Text = ""
    receipt_id: str = ""


class JobBody(JobItem):
    """One job as it stands."""

    #: Its JobSpec, without places on the server's disk.
    spec: dict[str, Content]
    trace_head: str
    lease: LeaseBody | None = None
    stop: StopBody | None = None
    #: Its JobResult, once it has one.
    result: dict[str, Content] | None = None
    forks: tuple[str, ...] = ()
    parked_for: WaitReason | None = None
    not_before: datetime | None = None


class QuestionBody(Answer):
    question: int
    text: Text
    #: What an answer must fit, as JSON Schema.
    answer_schema: Content
    asked_at: datetime
    until: datetime | None = None
    is_answered: bool = False


class AttemptBody(Answer):
    """One lease of a job."""

    attempt: int
    worker_id: str
    started_at: datetime
    ended_at: datetime | None = None
    outcome: str


class TraceItem(Answer):
    """One event of a trace."""

    seq: int
    kind: str
    at: datetime
    event: dict[str, Content]
    prev: str
    hash: str


class ReceiptBody(Answer):
    """Proof of one act of the control plane."""

    receipt_id: str
    task_id: str
    seq: int
    kind: str
    at: datetime
    body: dict[str, Content]
    hash: str


class ArtifactBody(Answer):
    """A file that a job made and that was kept."""

    path: Text
    sha256: str
    size_bytes: int


class ResultBody(Answer):
    """How a job ended; `result` is null as long as it has not."""

    job_id: str
    state: JobStateName
    result: dict[str, Content] | None


class TaskItem(Answer):
    task_id: str
    tenant_id: str
    goal: Text
    status: str
    version: int
    created_at: datetime
    updated_at: datetime


class TaskBody(TaskItem):
    job_ids: tuple[str, ...] = ()
    receipts: tuple[ReceiptBody, ...] = ()


#: A label that a job has, as NAME=VALUE.
LabelPair = Annotated[str, Field(max_length=401, pattern=r"^[^=\x00]+=[^\x00]*$")]
#: Words of what is asked, whole and in any order.
Words = Annotated[str, Field(max_length=1_000, pattern=r"^[^\x00]*$")]


class JobFilter(Request):
    """Which jobs: those that fit everything that is said."""

    #: Any of these.
    states: Annotated[tuple[JobStateName, ...], Field(max_length=20)] = ()
    task_id: Id | None = None
    #: All of these.
    labels: Annotated[tuple[LabelPair, ...], Field(max_length=10)] = ()
    #: Who writes the cells or answers predict().
    model: Label | None = None
    words: Words = ""
    created_after: AwareDatetime | None = None
    created_before: AwareDatetime | None = None
