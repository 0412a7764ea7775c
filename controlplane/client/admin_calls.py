"""Requests of those who look after a server: who may do what, budgets, workers, kill switches, what is wrong, health."""

from controlplane.api.bodies import Page
from controlplane.api.bodies_admin import (
    AuditBody,
    BudgetBody,
    CaseBody,
    DrainRequest,
    FindingBody,
    HealthBody,
    KeyBody,
    KeyRequest,
    LimitsBody,
    MadeKeyBody,
    MonitorsBody,
    PermissionBody,
    PermissionRequest,
    ReleaseRequest,
    SwitchBody,
    SwitchRequest,
    TenantBody,
    TenantChange,
    TenantRequest,
    VersionBody,
    WhoamiBody,
    WorkerBody,
)
from controlplane.client.calls import Call, body_as, change, get, post, segment

_SWITCH = body_as(SwitchBody)
_WORKER = body_as(WorkerBody)
_TENANT = body_as(TenantBody)


def whoami() -> Call[WhoamiBody]:
    """Who the key stands for, and what it may do."""
    return get("/v1/whoami", body_as(WhoamiBody))


def version() -> Call[VersionBody]:
    """Release and protocol of the server."""
    return get("/v1/version", body_as(VersionBody))


def health() -> Call[HealthBody]:
    """Whether the server answers at all."""
    return get("/healthz", body_as(HealthBody), also=(503,))


def readiness() -> Call[HealthBody]:
    """Whether the server can do its work, and what is wrong if not."""
    return get("/readyz", body_as(HealthBody), also=(503,))


def keys(*, limit: int = 100, cursor: str | None = None) -> Call[Page[KeyBody]]:
    """Keys, without their secrets."""
    return get("/v1/keys", body_as(Page[KeyBody]), {"limit": limit, "cursor": cursor})


def make_key(request: KeyRequest, *, key: str | None = None) -> Call[MadeKeyBody]:
    """A new key; its secret is in this answer and nowhere else."""
    return post("/v1/keys", body_as(MadeKeyBody), request, key=key)


def revoke_key(key_id: str) -> Call[KeyBody]:
    """End a key for good."""
    return change("DELETE", f"/v1/keys/{segment(key_id)}", body_as(KeyBody))


def tenants(*, limit: int = 100, cursor: str | None = None) -> Call[Page[TenantBody]]:
    """The tenants that the caller may see."""
    return get("/v1/tenants", body_as(Page[TenantBody]), {"limit": limit, "cursor": cursor})


def make_tenant(request: TenantRequest, *, key: str | None = None) -> Call[TenantBody]:
    """A new tenant."""
    return post("/v1/tenants", _TENANT, request, key=key)


def change_tenant(tenant_id: str, request: TenantChange) -> Call[TenantBody]:
    """Rename, suspend or weigh a tenant."""
    return change("PATCH", f"/v1/tenants/{segment(tenant_id)}", _TENANT, request)


def permissions(*, limit: int = 100, cursor: str | None = None) -> Call[Page[PermissionBody]]:
    """What was granted or denied beyond the roles."""
    return get("/v1/permissions", body_as(Page[PermissionBody]), {"limit": limit, "cursor": cursor})


def grant(request: PermissionRequest, *, key: str | None = None) -> Call[PermissionBody]:
    """Let somebody do something, or take it away."""
    return post("/v1/permissions", body_as(PermissionBody), request, key=key)


def revoke_permission(permission_id: str) -> Call[PermissionBody]:
    """End a permission."""
    return change("DELETE", f"/v1/permissions/{segment(permission_id)}", body_as(PermissionBody))


def audit(*, limit: int = 100, cursor: str | None = None) -> Call[Page[AuditBody]]:
    """Acts and refusals, newest first."""
    return get("/v1/audit", body_as(Page[AuditBody]), {"limit": limit, "cursor": cursor})


def budgets(*, limit: int = 100, cursor: str | None = None) -> Call[Page[BudgetBody]]:
    """What tenants may use, have used, and have set aside."""
    return get("/v1/budgets", body_as(Page[BudgetBody]), {"limit": limit, "cursor": cursor})


def set_budget(tenant_id: str, limits: LimitsBody) -> Call[BudgetBody]:
    """The limits of a tenant, all of them: what is left out is unlimited."""
    return change("PUT", f"/v1/budgets/{segment(tenant_id)}", body_as(BudgetBody), limits)


def switches(*, limit: int = 100, cursor: str | None = None, ended: bool = False) -> Call[Page[SwitchBody]]:
    """The kill switches in force; with `ended`, those of before, too."""
    query = {"limit": limit, "cursor": cursor, "ended": ended}
    return get("/v1/switches", body_as(Page[SwitchBody]), query)


def engage(request: SwitchRequest, *, key: str | None = None) -> Call[SwitchBody]:
    """Stop everything in a scope, and let nothing of it start until the switch is released."""
    return post("/v1/switches", _SWITCH, request, key=key)


def release(switch_id: int, *, reason: str, key: str | None = None) -> Call[SwitchBody]:
    """Release a kill switch."""
    return post(f"/v1/switches/{switch_id}/release", _SWITCH, ReleaseRequest(reason=reason), key=key)


def workers(*, limit: int = 200, cursor: str | None = None) -> Call[Page[WorkerBody]]:
    """The workers that are there, then those seen last."""
    return get("/v1/workers", body_as(Page[WorkerBody]), {"limit": limit, "cursor": cursor})


def drain(worker_id: str, *, draining: bool = True, key: str | None = None) -> Call[WorkerBody]:
    """Let a worker finish what it has and take up nothing more, or let it take up work again."""
    return post(f"/v1/workers/{segment(worker_id)}/drain", _WORKER, DrainRequest(draining=draining), key=key)


def findings(
    *, limit: int = 100, cursor: str | None = None, ended: bool = False, content: bool = False
) -> Call[Page[FindingBody]]:
    """What the watchdogs found wrong, and what was done about it."""
    query = {"limit": limit, "cursor": cursor, "ended": ended, "content": content}
    return get("/v1/findings", body_as(Page[FindingBody]), query)


def monitors() -> Call[MonitorsBody]:
    """Figures about jobs and workers as they stand."""
    return get("/v1/monitors", body_as(MonitorsBody))


def case(job_id: str, *, content: bool = False) -> Call[CaseBody]:
    """Everything about a job that went wrong, and what can be done about it: a page of the runbook."""
    return get(f"/v1/runbook/{segment(job_id)}", body_as(CaseBody), {"content": content})
