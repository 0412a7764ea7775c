"""Rows of tenants, permissions and the audit."""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import schema, schema_access
from controlplane.domain.identity import Scope
from controlplane.domain.permissions import Constraints, Permission
from controlplane.ports_access import AttemptRow, AuditRow, TenantRow

_TASK, _ATTEMPT = schema.task, schema.attempt
_TENANT, _PERMISSION, _AUDIT = schema_access.tenant, schema_access.permission, schema_access.audit


def insert_if_new(connection: sa.Connection, table: sa.Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless there is one of its key; False then. Two who do it at once both return."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert as insert_there  # noqa: PLC0415

        made: sa.Executable = (
            insert_there(table).values(**row).on_conflict_do_nothing().returning(*table.primary_key.columns)
        )
    else:
        from sqlalchemy.dialects.sqlite import insert as insert_here  # noqa: PLC0415

        made = insert_here(table).values(**row).on_conflict_do_nothing().returning(*table.primary_key.columns)
    # What it tells of rows it touched is not to be relied on: a row that was made comes back.
    return connection.execute(made).first() is not None


def within(query: sa.Select[Any], column: sa.Column[str], scope: Scope) -> sa.Select[Any]:
    return query if scope.tenant_id is None else query.where(column == scope.tenant_id)


class SqlTenants:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def get(self, tenant_id: str) -> TenantRow | None:
        query = sa.select(_TENANT).where(_TENANT.c.tenant_id == tenant_id)
        found = self._connection.execute(query).mappings().first()
        return None if found is None else _to_tenant(found)

    def put(self, row: TenantRow) -> None:
        columns = asdict(row)
        if insert_if_new(self._connection, _TENANT, {**columns, "created_ms": self._now_ms}):
            return
        del columns["created_ms"]
        self._connection.execute(
            sa.update(_TENANT).where(_TENANT.c.tenant_id == row.tenant_id).values(**columns)
        )

    def page(self, *, scope: Scope, after: str, limit: int) -> list[TenantRow]:
        query = sa.select(_TENANT).where(_TENANT.c.tenant_id > after)
        query = within(query, _TENANT.c.tenant_id, scope).order_by(_TENANT.c.tenant_id).limit(limit)
        return [_to_tenant(found) for found in self._connection.execute(query).mappings()]


def _to_tenant(found: Mapping[Any, Any]) -> TenantRow:
    return TenantRow(**{**found, "is_suspended": bool(found["is_suspended"])})


class SqlPermissions:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def of(self, *, tenant_id: str, subjects: Collection[str], capability: str) -> list[Permission]:
        query = sa.select(_PERMISSION).where(
            _PERMISSION.c.tenant_id.in_({tenant_id, ""}),
            _PERMISSION.c.subject.in_(subjects),
            _PERMISSION.c.capability == capability,
            _PERMISSION.c.revoked_ms.is_(None),
        )
        return [_to_permission(found) for found in self._connection.execute(query).mappings()]

    def get(self, permission_id: str, *, scope: Scope) -> Permission | None:
        query = sa.select(_PERMISSION).where(_PERMISSION.c.permission_id == permission_id)
        found = self._connection.execute(within(query, _PERMISSION.c.tenant_id, scope)).mappings().first()
        return None if found is None else _to_permission(found)

    def add(self, permission: Permission) -> None:
        columns = {**asdict(permission), "constraints": _constraints_text(permission.constraints)}
        self._connection.execute(sa.insert(_PERMISSION), {**columns, "created_ms": self._now_ms})

    def revoke(self, permission_id: str, *, by: str) -> None:
        self._connection.execute(
            sa.update(_PERMISSION)
            .where(_PERMISSION.c.permission_id == permission_id)
            .values(revoked_ms=self._now_ms, revoked_by=by)
        )

    def page(self, *, scope: Scope, after: str, limit: int) -> list[Permission]:
        query = sa.select(_PERMISSION).where(_PERMISSION.c.permission_id > after)
        query = within(query, _PERMISSION.c.tenant_id, scope).order_by(_PERMISSION.c.permission_id)
        return [_to_permission(found) for found in self._connection.execute(query.limit(limit)).mappings()]


def _constraints_text(constraints: Constraints) -> str:
    body = {name: value for name, value in asdict(constraints).items() if value is not None}
    if constraints.max_usd is not None:
        body["max_usd"] = str(constraints.max_usd)
    return json.dumps(body)


def _to_permission(found: Mapping[Any, Any]) -> Permission:
    body = json.loads(found["constraints"])
    labels, models, tasks = body.get("labels"), body.get("models"), body.get("task_ids")
    constraints = Constraints(
        labels=None if labels is None else tuple((name, value) for name, value in labels),
        models=None if models is None else tuple(models),
        max_usd=None if body.get("max_usd") is None else Decimal(body["max_usd"]),
        task_ids=None if tasks is None else tuple(tasks),
    )
    return Permission(**{**found, "constraints": constraints})


class SqlAudits:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def add(self, row: AuditRow) -> None:
        columns = asdict(replace(row, at_ms=self._now_ms))
        del columns["audit_id"]
        self._connection.execute(sa.insert(_AUDIT), columns)

    def page(self, *, scope: Scope, before: int | None, limit: int) -> list[AuditRow]:
        query = within(sa.select(_AUDIT), _AUDIT.c.tenant_id, scope)
        if before is not None:
            query = query.where(_AUDIT.c.audit_id < before)
        query = query.order_by(_AUDIT.c.audit_id.desc()).limit(limit)
        return [AuditRow(**found) for found in self._connection.execute(query).mappings()]


class SqlAttempts:
    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def of(self, job_id: str) -> list[AttemptRow]:
        named = ("attempt", "worker_id", "granted_ms", "ended_ms", "outcome")
        query = sa.select(*(_ATTEMPT.c[name] for name in named))
        query = query.where(_ATTEMPT.c.job_id == job_id).order_by(_ATTEMPT.c.attempt)
        return [AttemptRow(**found) for found in self._connection.execute(query).mappings()]


class SqlTaskList:
    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    def page(self, *, scope: Scope, before: tuple[int, str] | None, limit: int) -> list[tuple[int, str]]:
        columns = (_TASK.c.created_ms, _TASK.c.task_id)
        query = within(sa.select(*columns), _TASK.c.tenant_id, scope)
        if before is not None:
            query = query.where(sa.tuple_(*columns) < sa.tuple_(*map(sa.literal, before)))
        query = query.order_by(*(column.desc() for column in columns)).limit(limit)
        return [(created_ms, task_id) for created_ms, task_id in self._connection.execute(query)]
