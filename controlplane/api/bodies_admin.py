"""Bodies of the API for those who look after it: identity, permissions, budgets, workers, kill switches, findings, health."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, JsonValue

from controlplane.api.bodies import Answer, Content, Id, JobBody, Label, Request, Text, TraceItem, Whole
from controlplane.domain.identity import Capability, Role

Roles = Annotated[frozenset[Role], Field(min_length=1)]


class WhoamiBody(Answer):
    """Who the caller is, as the server sees it."""

    name: str
    #: Null: callers who look after every tenant.
    tenant_id: str | None
    roles: tuple[Role, ...]
    capabilities: tuple[Capability, ...]
    credential_id: str = ""


class VersionBody(Answer):
    version: str
    api: Literal["v1"] = "v1"
    #: Of what workers and the control plane say to each other.
    protocol: int


class HealthBody(Answer):
    status: Literal["ok", "failing"]
    #: What was looked at, each `ok` or what is wrong.
    checks: dict[str, str] = Field(default_factory=dict)


class KeyRequest(Request):
    """A key for a program or a person."""

    principal: Id
    roles: Roles
    #: One's own tenant when it is left out.
    tenant_id: Id | None = None
    note: Annotated[str, Field(max_length=2_000)] = ""
    expires_at: AwareDatetime | None = None


class KeyBody(Answer):
    """A key, without its secret."""

    key_id: str
    tenant_id: str | None
    principal: str
    roles: tuple[Role, ...]
    note: str = ""
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: str = ""
    used_at: datetime | None = None


class MadeKeyBody(KeyBody):
    """A key that was just made. Its secret is shown this once."""

    #: What goes behind `Bearer`; null when the answer is a repetition.
    key: str | None


class TenantRequest(Request):
    tenant_id: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    name: Annotated[str, Field(max_length=500)] = ""
    #: Jobs of it at work at once; what the settings say when it is left out.
    max_jobs: Annotated[int, Field(gt=0, le=1_000_000)] | None = None
    #: Its share of the workers, beside the others'.
    weight: Annotated[int, Field(gt=0, le=1_000)] = 1


class TenantChange(Request):
    """What is left out stays."""

    name: Annotated[str, Field(max_length=500)] | None = None
    is_suspended: bool | None = None
    max_jobs: Annotated[int, Field(gt=0, le=1_000_000)] | None = None
    weight: Annotated[int, Field(gt=0, le=1_000)] | None = None


class TenantBody(Answer):
    tenant_id: str
    name: str
    is_suspended: bool
    max_jobs: int | None
    weight: int
    created_at: datetime


class Constraints(Request):
    """What a permission is limited to; what is left out is not looked at."""

    #: Labels that the job has.
    labels: Annotated[dict[Label, Label], Field(max_length=50)] | None = None
    #: Models that may be used, all of a job's.
    models: Annotated[tuple[Annotated[str, Field(max_length=200)], ...], Field(max_length=100)] | None = None
    #: The most that a job may be allowed to cost.
    max_usd: Annotated[Decimal, Field(ge=0, le=1_000_000_000)] | None = None
    task_ids: Annotated[tuple[Id, ...], Field(max_length=1_000)] | None = None


class PermissionRequest(Request):
    """Lets somebody do something beyond the roles, or takes it away."""

    #: A principal, or `role:NAME`.
    subject: Id
    capability: Capability
    effect: Literal["allow", "deny"]
    tenant_id: Id | None = None
    constraints: Constraints = Constraints()
    expires_at: AwareDatetime | None = None


class PermissionBody(Answer):
    permission_id: str
    tenant_id: str
    subject: str
    capability: Capability
    effect: Literal["allow", "deny"]
    constraints: dict[str, JsonValue] = Field(default_factory=dict)
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    revoked_by: str = ""


class AuditBody(Answer):
    """An act of a person or a program on the control plane, or one that was refused."""

    audit_id: int
    tenant_id: str
    principal: str
    action: str
    target: str
    outcome: Literal["done", "refused"]
    reason: str = ""
    at: datetime


class LimitsBody(Request):
    """Upper bounds; null means unlimited. `tokens` bounds input and output together."""

    subcalls: Whole | None = None
    input_tokens: Whole | None = None
    output_tokens: Whole | None = None
    tokens: Whole | None = None
    cost_usd: Annotated[Decimal, Field(ge=0, le=1_000_000, allow_inf_nan=False)] | None = None


class AmountsBody(Answer):
    subcalls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal


class BudgetBody(Answer):
    """What a tenant may use, has used, and has set aside for jobs that run."""

    tenant_id: str
    limits: LimitsBody
    spent: AmountsBody
    held: AmountsBody


SwitchScope = Literal["all", "tenant", "task", "job", "tool", "model", "image"]


class SwitchRequest(Request):
    """A kill switch: in force until it is released."""

    scope_kind: SwitchScope
    #: What it is on; left out with `all`. Of tools, models and images a star may stand at the end.
    scope_id: Annotated[str, Field(max_length=200)] = ""
    action: Literal["pause", "stop", "kill"] = "kill"
    reason: Annotated[str, Field(min_length=1, max_length=1_000)]
    #: Limits the switch of a tool or a model to one tenant; one's own for callers of a tenant.
    tenant_id: Id | None = None


class ReleaseRequest(Request):
    reason: Annotated[str, Field(min_length=1, max_length=1_000)]


class SwitchBody(Answer):
    #: 0: the database is held up; workers have the order, and it is entered as soon as that is free.
    order_id: int
    scope_kind: SwitchScope
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


class WorkerBody(Answer):
    worker_id: str
    host: str = ""
    slots: int = 0
    image: str = ""
    facts: dict[str, JsonValue] = Field(default_factory=dict)
    #: `silent`: it was not seen for a while and does not count.
    state: Literal["working", "draining", "silent", "gone"]
    is_draining: bool = False
    first_seen_at: datetime
    last_seen_at: datetime


class DrainRequest(Request):
    #: False: it may take up work again.
    draining: bool = True


class FindingBody(Answer):
    """Something that a watchdog found wrong with a job, and what was done about it."""

    finding_id: str
    tenant_id: str
    job_id: str
    kind: str
    detail: Text
    evidence: Content
    action: str
    at: datetime
    resolved_at: datetime | None = None


class StateFigures(Answer):
    jobs: int
    oldest_seconds: float


class WorkerFigures(Answer):
    worker_id: str
    host: str
    slots: int
    is_draining: bool
    silent_seconds: float
    jobs: int


class MonitorsBody(Answer):
    """How things stand."""

    at: datetime
    jobs: dict[str, StateFigures]
    ended_last_hour: dict[str, int]
    failure_rate: float
    oldest_running_seconds: float
    oldest_waiting_seconds: float
    jobs_retried: int
    most_retries: int
    queue_depth: int
    #: Told to who looks after every tenant.
    workers: tuple[WorkerFigures, ...] = ()


class CheckpointBody(Answer):
    seq: int
    digest: str
    state: Content


class PendingBody(Answer):
    """A call that left and has no recorded outcome."""

    ordinal: int
    kind: str
    model: str
    key: str
    fence: int
    asked_at: datetime
    hold: dict[str, Content]


class CaseBody(Answer):
    """Everything about a job that an operator needs to decide what to do with it."""

    job: JobBody
    checkpoint: CheckpointBody | None
    step_id: str
    step_status: str
    task_status: str
    iteration: int
    last_event: TraceItem | None
    pending: tuple[PendingBody, ...]
    observed: TraceItem | None
    findings: tuple[FindingBody, ...]
    #: What can be done, in the words of the commands.
    choices: tuple[str, ...]
