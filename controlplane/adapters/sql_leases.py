"""Rows of leases and attempts."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import schema
from controlplane.adapters.driver_sql import DriverSql
from controlplane.adapters.locks import lock
from controlplane.domain.ids import Fence
from controlplane.domain.lease import Lease

Columns = sa.RowMapping | Mapping[str, Any]
_LEASE, _ATTEMPT = schema.lease, schema.attempt
_LEASE_COLUMNS = _LEASE.c.keys()
_ADD_LEASE = DriverSql(sa.insert(_LEASE), _LEASE_COLUMNS)
_ADD_ATTEMPT = DriverSql(sa.insert(_ATTEMPT), _ATTEMPT.c.keys())
_EXTEND = DriverSql(
    sa.update(_LEASE)
    .where(_LEASE.c.job_id == sa.bindparam("wanted"), _LEASE.c.fence == sa.bindparam("held"))
    .values(until_ms=sa.bindparam("until_ms"), renewed_ms=sa.bindparam("renewed_ms"))
)
_DROP = DriverSql(sa.delete(_LEASE).where(_LEASE.c.job_id == sa.bindparam("wanted")))
_END_ATTEMPT = DriverSql(
    sa.update(_ATTEMPT)
    .where(_ATTEMPT.c.job_id == sa.bindparam("wanted"), _ATTEMPT.c.ended_ms.is_(None))
    .values(ended_ms=sa.bindparam("ended_ms"), outcome=sa.bindparam("outcome"))
)
_SPENT = DriverSql(
    sa.select(sa.cast(sa.func.sum(_ATTEMPT.c.ended_ms - _ATTEMPT.c.granted_ms), sa.BigInteger)).where(
        _ATTEMPT.c.job_id == sa.bindparam("wanted"), _ATTEMPT.c.ended_ms.is_not(None)
    )
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
        _ADD_LEASE.many(self._connection, [tuple(getattr(lease, name) for name in _LEASE_COLUMNS)])
        attempt = (lease.job_id, lease.attempt, lease.fence, lease.worker_id, lease.granted_ms, None, "open")
        _ADD_ATTEMPT.many(self._connection, [attempt])

    def extend(self, job_id: str, *, fence: int, until_ms: int) -> None:
        values = {"wanted": job_id, "held": fence, "until_ms": until_ms, "renewed_ms": self._now_ms}
        _EXTEND.one(self._connection, values)

    def drop(self, job_id: str, *, outcome: str, ended_ms: int) -> None:
        _DROP.one(self._connection, {"wanted": job_id})
        _END_ATTEMPT.one(self._connection, {"wanted": job_id, "ended_ms": ended_ms, "outcome": outcome})

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
        found = _SPENT.first(self._connection, {"wanted": job_id})
        return 0 if found is None else int(found[0] or 0)
