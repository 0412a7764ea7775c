"""Rows of leases, attempts and workers."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import schema
from controlplane.adapters.driver_sql import DriverSql
from controlplane.adapters.locks import lock
from controlplane.domain.ids import Fence
from controlplane.domain.lease import Lease

Columns = sa.RowMapping | Mapping[str, Any]
_LEASE, _ATTEMPT, _WORKER = schema.lease, schema.attempt, schema.worker
_SEE = DriverSql(
    sa.insert(_WORKER),
    ("worker_id", "first_seen_ms", "last_seen_ms"),
    ending=" ON CONFLICT (worker_id) DO UPDATE SET last_seen_ms = excluded.last_seen_ms",
)
_GET_LEASE = DriverSql(sa.select(_LEASE).where(_LEASE.c.job_id == sa.bindparam("wanted")))


def to_lease(found: Columns) -> Lease:
    return Lease(**{**found, "fence": Fence(found["fence"])})


class SqlLeases:
    def __init__(self, connection: sa.Connection, *, now_ms: int, is_writing: bool) -> None:
        self._connection = connection
        self._now_ms = now_ms
        self._is_writing = is_writing

    def get(self, job_id: str) -> Lease | None:
        found = _GET_LEASE.first(self._connection, {"wanted": job_id})
        return None if found is None else to_lease(dict(zip(_LEASE.c.keys(), found, strict=True)))

    def put(self, lease: Lease) -> None:
        self._connection.execute(sa.insert(_LEASE), asdict(lease))
        row = {
            "job_id": lease.job_id,
            "attempt": lease.attempt,
            "fence": lease.fence,
            "worker_id": lease.worker_id,
            "granted_ms": lease.granted_ms,
            "ended_ms": None,
            "outcome": "open",
        }
        self._connection.execute(sa.insert(_ATTEMPT), row)

    def extend(self, job_id: str, *, fence: int, until_ms: int) -> None:
        self._connection.execute(
            sa.update(_LEASE)
            .where(_LEASE.c.job_id == job_id, _LEASE.c.fence == fence)
            .values(until_ms=until_ms, renewed_ms=self._now_ms)
        )

    def drop(self, job_id: str, *, outcome: str, ended_ms: int) -> None:
        self._connection.execute(sa.delete(_LEASE).where(_LEASE.c.job_id == job_id))
        self._connection.execute(
            sa.update(_ATTEMPT)
            .where(_ATTEMPT.c.job_id == job_id, _ATTEMPT.c.ended_ms.is_(None))
            .values(ended_ms=ended_ms, outcome=outcome)
        )

    def all(self) -> list[Lease]:
        return [to_lease(found) for found in self._connection.execute(sa.select(_LEASE)).mappings()]

    def live_of_tenant(self, tenant_id: str) -> int:
        if self._is_writing:
            # Whoever counts to decide counts alone.
            lock(self._connection, f"leases of {tenant_id}")
        query = (
            sa.select(sa.func.count())
            .select_from(_LEASE)
            .where(_LEASE.c.tenant_id == tenant_id, _LEASE.c.until_ms > self._now_ms)
        )
        return self._connection.execute(query).scalar_one()

    def spent_ms(self, job_id: str) -> int:
        length = sa.func.sum(_ATTEMPT.c.ended_ms - _ATTEMPT.c.granted_ms)
        query = sa.select(length).where(_ATTEMPT.c.job_id == job_id, _ATTEMPT.c.ended_ms.is_not(None))
        return self._connection.execute(query).scalar() or 0

    def seen(self, worker_id: str) -> None:
        _SEE.many(self._connection, [(worker_id, self._now_ms, self._now_ms)])
