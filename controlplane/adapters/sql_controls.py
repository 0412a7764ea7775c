"""Rows of kill switches, of changed limits, and of orders that came from beside the store."""

import json
from dataclasses import fields
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import schema, schema_access
from controlplane.adapters.driver_sql import DriverSql
from controlplane.domain.identity import Scope
from controlplane.domain.switches import Subject, Switch
from rlm_worker.contracts.gateway import Retune

_ORDER, _JOB, _LEASE = schema.control_order, schema.job, schema.lease
_FIELDS = tuple(each.name for each in fields(Switch))
_IN_FORCE = DriverSql(
    sa.select(*(_ORDER.c[name] for name in _FIELDS))
    .where(_ORDER.c.released_ms.is_(None))
    .order_by(_ORDER.c.order_id)
)
#: The name of the lock between starting something and engaging a switch: any number. SQLite has one writer anyway.
_LOCK = 0x637573746F6479


class SqlControls:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def engage(self, switch: Switch) -> Switch:
        self._lock(sa.func.pg_advisory_xact_lock)
        row: dict[str, Any] = {
            "scope_kind": switch.scope_kind,
            "scope_id": switch.scope_id,
            "tenant_id": switch.tenant_id,
            "action": switch.action,
            "reason": switch.reason,
            "by": switch.by,
            "at_ms": switch.at_ms or self._now_ms,
        }
        made = self._connection.execute(sa.insert(_ORDER).returning(_ORDER.c.order_id), row)
        return Switch(**row, order_id=made.scalar_one())

    def _lock(self, take: Any) -> None:
        """Switches are engaged when everything that has begun has committed, and nothing begins meanwhile."""
        if self._connection.dialect.name == "postgresql":
            self._connection.execute(sa.select(take(_LOCK)))

    def release(self, order_id: int, *, by: str, reason: str) -> None:
        self._connection.execute(
            sa.update(_ORDER)
            .where(_ORDER.c.order_id == order_id, _ORDER.c.released_ms.is_(None))
            .values(released_ms=self._now_ms, released_by=by, released_reason=reason)
        )

    def get(self, order_id: int, *, scope: Scope) -> Switch | None:
        query = sa.select(_ORDER).where(_ORDER.c.order_id == order_id)
        found = self._connection.execute(_seen(query, scope)).mappings().first()
        return None if found is None else Switch(**found)

    def in_force(self, *, is_starting: bool = False) -> list[Switch]:
        if is_starting:
            self._lock(sa.func.pg_advisory_xact_lock_shared)
        return [
            Switch(**dict(zip(_FIELDS, found, strict=True))) for found in _IN_FORCE.all(self._connection, {})
        ]

    def page(self, *, scope: Scope, limit: int, before: int | None, only_in_force: bool) -> list[Switch]:
        query = sa.select(_ORDER).order_by(_ORDER.c.order_id.desc()).limit(limit)
        if before is not None:
            query = query.where(_ORDER.c.order_id < before)
        if only_in_force:
            query = query.where(_ORDER.c.released_ms.is_(None))
        return [Switch(**found) for found in self._connection.execute(_seen(query, scope)).mappings()]

    def at_work(self) -> list[Subject]:
        query = (
            sa.select(
                _JOB.c.job_id,
                _JOB.c.task_id,
                _JOB.c.tenant_id,
                _JOB.c.model,
                _JOB.c.sub_model,
                _JOB.c.tools,
                schema.worker.c.image,
            )
            .select_from(_LEASE.join(_JOB, _JOB.c.job_id == _LEASE.c.job_id))
            .outerjoin(schema.worker, schema.worker.c.worker_id == _LEASE.c.worker_id)
            .order_by(_JOB.c.job_id)
        )
        return [
            Subject(
                job_id=found.job_id,
                task_id=found.task_id,
                tenant_id=found.tenant_id,
                models=tuple(filter(None, (found.model, found.sub_model))),
                tools=tuple(found.tools.split()),
                image=found.image or "",
            )
            for found in self._connection.execute(query)
        ]

    def held(self, *, tenant_id: str) -> list[str]:
        query = sa.select(_JOB.c.job_id).where(_JOB.c.state == "held", _JOB.c.desired == "pause")
        if tenant_id:
            query = query.where(_JOB.c.tenant_id == tenant_id)
        return list(self._connection.execute(query.order_by(_JOB.c.job_id)).scalars())

    def image_of(self, worker_id: str) -> str:
        query = sa.select(schema.worker.c.image).where(schema.worker.c.worker_id == worker_id)
        return self._connection.execute(query).scalar() or ""

    def take_mark(self, mark: str) -> bool:
        known = sa.select(schema.side_order.c.mark).where(schema.side_order.c.mark == mark)
        if self._connection.execute(known).first() is not None:
            return False
        self._connection.execute(sa.insert(schema.side_order), {"mark": mark, "at_ms": self._now_ms})
        return True

    def audit(self, *, tenant_id: str, principal: str, action: str, target: str, reason: str) -> None:
        row = {
            "tenant_id": tenant_id,
            "principal": principal,
            "action": action,
            "target": target,
            "outcome": "done",
            "reason": reason,
            "at_ms": self._now_ms,
        }
        self._connection.execute(sa.insert(schema_access.audit), row)


def _seen(query: sa.Select[Any], scope: Scope) -> sa.Select[Any]:
    return query if scope.tenant_id is None else query.where(_ORDER.c.tenant_id.in_(("", scope.tenant_id)))


class SqlRetunes:
    """Changes of limits, kept beside the steers."""

    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def add(self, job_id: str, retune: Retune) -> None:
        row = {
            "job_id": job_id,
            "kind": "retune",
            "body": json.dumps(retune.model_dump(mode="json")),
            "by": retune.by,
            "at_ms": self._now_ms,
        }
        self._connection.execute(sa.insert(schema.command), row)

    def latest(self, job_id: str) -> Retune | None:
        command = schema.command
        query = (
            sa.select(command.c.body)
            .where(command.c.job_id == job_id, command.c.kind == "retune")
            .order_by(command.c.command_id.desc())
            .limit(1)
        )
        found = self._connection.execute(query).scalar()
        return None if found is None else Retune.model_validate_json(found)
