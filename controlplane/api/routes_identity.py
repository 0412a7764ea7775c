"""Who may do what: the caller itself, keys, tenants, permissions, and the audit of it all."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from controlplane.api.answers import at, maybe_at, ms_of
from controlplane.api.bodies import Page
from controlplane.api.bodies_admin import (
    AuditBody,
    Constraints,
    KeyBody,
    KeyRequest,
    MadeKeyBody,
    PermissionBody,
    PermissionRequest,
    TenantBody,
    TenantChange,
    TenantRequest,
    WhoamiBody,
)
from controlplane.api.calls import Acting, Called, Reply
from controlplane.api.cursors import cursor, number_place, text_place
from controlplane.api.operations import Cursor, Key, Limit, NamedId, answers
from controlplane.domain import permissions as rules
from controlplane.domain.identity import ROLES, Caller
from controlplane.handlers import audits, grants, keys, tenants
from controlplane.ports_access import KeyRow, TenantRow

routes = APIRouter(prefix="/v1", tags=["identity"])


@routes.get("/whoami", operation_id="whoami", **answers(200, WhoamiBody))
async def whoami(call: Called) -> Response:
    """Who the caller is, and what its roles let it do; permissions may add to that or take away."""

    def act(acting: Acting) -> Reply:
        caller = acting.caller
        able = {capability for role in caller.roles for capability in ROLES[role]}
        body = WhoamiBody(
            name=caller.name,
            tenant_id=caller.scope.tenant_id,
            roles=tuple(sorted(caller.roles)),
            capabilities=tuple(sorted(able)),
            credential_id=caller.credential_id,
        )
        return Reply(body=body)

    return await call.read(act)


@routes.get("/keys", operation_id="list_keys", **answers(200, Page[KeyBody]))
async def list_keys(call: Called, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Keys of the API, those that ended too. No secret is among it."""

    def act(acting: Acting) -> Reply:
        found = keys.page(
            acting.desk, caller=acting.caller, after=text_place("keys", cursor), limit=limit + 1
        )
        items = tuple(KeyBody(**_key_fields(row)) for row in found[:limit])
        return Reply(body=Page[KeyBody](items=items, next=_next("keys", found, limit, "key_id")))

    return await call.read(act)


def _next(of: str, found: Sequence[object], limit: int, name: str) -> str | None:
    return cursor(of, getattr(found[limit - 1], name)) if len(found) > limit else None


def _key_fields(row: KeyRow) -> dict[str, Any]:
    return {
        "key_id": row.key_id,
        "tenant_id": row.tenant_id or None,
        "principal": row.principal,
        "roles": tuple(sorted(row.roles)),
        "note": row.note,
        "created_at": at(row.created_ms),
        "created_by": row.created_by,
        "expires_at": maybe_at(row.expires_ms),
        "revoked_at": maybe_at(row.revoked_ms),
        "revoked_by": row.revoked_by,
        "used_at": maybe_at(row.used_ms),
    }


@routes.post("/keys", operation_id="issue_key", **answers(201, MadeKeyBody))
async def issue_key(call: Called, body: KeyRequest, key: Key = None) -> Response:
    """Make a key. Its secret is in this answer and nowhere else, also not in the answer to the same request again."""

    def act(acting: Acting) -> Reply:
        row, whole = keys.issue(
            acting.desk,
            principal=body.principal,
            roles=body.roles,
            tenant_id=_tenant(body.tenant_id, acting.caller),
            caller=acting.caller,
            expires_ms=ms_of(body.expires_at),
            note=body.note,
        )
        fields = _key_fields(row)
        return Reply(body=MadeKeyBody(key=whole, **fields), status=201, kept=MadeKeyBody(key=None, **fields))

    _ = key
    return await call.write(act)


def _tenant(named: str | None, caller: Caller) -> str:
    """The tenant that is named, else the caller's own; none for those who look after all of them."""
    return named if named is not None else caller.scope.tenant_id or ""


@routes.delete("/keys/{key_id}", operation_id="revoke_key", **answers(200, KeyBody))
async def revoke_key(call: Called, key_id: NamedId) -> Response:
    """End a key, at once and for good."""

    def act(acting: Acting) -> Reply:
        return Reply(body=KeyBody(**_key_fields(keys.revoke(acting.desk, key_id, caller=acting.caller))))

    return await call.write(act)


@routes.get("/tenants", operation_id="list_tenants", **answers(200, Page[TenantBody]))
async def list_tenants(call: Called, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """The caller's tenant, or all of them for those who look after all."""

    def act(acting: Acting) -> Reply:
        after = text_place("tenants", cursor)
        found = tenants.page(acting.desk, caller=acting.caller, after=after, limit=limit + 1)
        items = tuple(_tenant_body(row) for row in found[:limit])
        return Reply(body=Page[TenantBody](items=items, next=_next("tenants", found, limit, "tenant_id")))

    return await call.read(act)


def _tenant_body(row: TenantRow) -> TenantBody:
    fields = asdict(row)
    return TenantBody(created_at=at(fields.pop("created_ms")), **fields)


@routes.post("/tenants", operation_id="create_tenant", **answers(201, TenantBody))
async def create_tenant(call: Called, body: TenantRequest, key: Key = None) -> Response:
    """Enter a tenant."""

    def act(acting: Acting) -> Reply:
        row = tenants.create(acting.desk, TenantRow(**body.model_dump()), caller=acting.caller)
        return Reply(body=_tenant_body(row), status=201)

    _ = key
    return await call.write(act)


@routes.patch("/tenants/{tenant_id}", operation_id="change_tenant", **answers(200, TenantBody))
async def change_tenant(call: Called, tenant_id: NamedId, body: TenantChange) -> Response:
    """Change a tenant. A suspended one may look and stop, and begins nothing."""

    def act(acting: Acting) -> Reply:
        changes = body.model_dump(exclude_unset=True)
        for name in ("name", "is_suspended", "weight"):
            if changes.get(name, "") is None:
                del changes[name]
        row = tenants.change(acting.desk, tenant_id, changes=changes, caller=acting.caller)
        return Reply(body=_tenant_body(row))

    return await call.write(act)


@routes.get("/permissions", operation_id="list_permissions", **answers(200, Page[PermissionBody]))
async def list_permissions(call: Called, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Permissions beside the roles, those that ended too."""

    def act(acting: Acting) -> Reply:
        after = text_place("permissions", cursor)
        found = grants.page(acting.desk, caller=acting.caller, after=after, limit=limit + 1)
        items = tuple(_permission_body(each) for each in found[:limit])
        more = _next("permissions", found, limit, "permission_id")
        return Reply(body=Page[PermissionBody](items=items, next=more))

    return await call.read(act)


def _permission_body(given: rules.Permission) -> PermissionBody:
    limited = given.constraints
    constraints = Constraints(
        labels=None if limited.labels is None else dict(limited.labels),
        models=limited.models,
        max_usd=limited.max_usd,
        task_ids=limited.task_ids,
    )
    return PermissionBody(
        permission_id=given.permission_id,
        tenant_id=given.tenant_id,
        subject=given.subject,
        capability=given.capability,
        effect=given.effect,
        constraints=constraints.model_dump(mode="json", exclude_none=True),
        created_at=at(given.created_ms),
        created_by=given.created_by,
        expires_at=maybe_at(given.expires_ms),
        revoked_at=maybe_at(given.revoked_ms),
        revoked_by=given.revoked_by,
    )


@routes.post("/permissions", operation_id="give_permission", **answers(201, PermissionBody))
async def give_permission(call: Called, body: PermissionRequest, key: Key = None) -> Response:
    """Let somebody do something beyond the roles, or take it away, until it is revoked or ends. A denial wins."""

    def act(acting: Acting) -> Reply:
        given = rules.Permission(
            permission_id=acting.desk.new_id("prm"),
            tenant_id=_tenant(body.tenant_id, acting.caller),
            subject=body.subject,
            capability=body.capability,
            effect=body.effect,
            constraints=_constraints(body.constraints),
            created_by=acting.caller.name,
            expires_ms=ms_of(body.expires_at),
        )
        made = grants.give(acting.desk, given, caller=acting.caller)
        return Reply(body=_permission_body(made), status=201)

    _ = key
    return await call.write(act)


def _constraints(body: Constraints) -> rules.Constraints:
    return rules.Constraints(
        labels=None if body.labels is None else tuple(sorted(body.labels.items())),
        models=body.models,
        max_usd=body.max_usd,
        task_ids=body.task_ids,
    )


@routes.delete(
    "/permissions/{permission_id}", operation_id="revoke_permission", **answers(200, PermissionBody)
)
async def revoke_permission(call: Called, permission_id: NamedId) -> Response:
    """End a permission, at once and for good."""

    def act(acting: Acting) -> Reply:
        return Reply(body=_permission_body(grants.revoke(acting.desk, permission_id, caller=acting.caller)))

    return await call.write(act)


@routes.get("/audit", operation_id="read_audit", **answers(200, Page[AuditBody]))
async def read_audit(call: Called, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Administrative acts and refusals, the newest first."""

    def act(acting: Acting) -> Reply:
        before = number_place("audit", cursor)
        found = audits.page(acting.desk, caller=acting.caller, before=before, limit=limit + 1)
        items = []
        for row in found[:limit]:
            fields = asdict(row)
            items.append(AuditBody(at=at(fields.pop("at_ms")), **fields))
        more = _next("audit", found, limit, "audit_id")
        return Reply(body=Page[AuditBody](items=tuple(items), next=more))

    return await call.read(act)
