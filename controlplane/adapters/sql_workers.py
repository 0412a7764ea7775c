"""Rows of workers, and of duties that one process at a time has."""

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import schema
from controlplane.adapters.driver_sql import DriverSql
from controlplane.ports_queue import WorkerRow

_WORKER, _DUTY = schema.worker, schema.duty
#: A sign of life this old is told anew: a row that each claim changed would be a queue of its own.
_FRESH_MS = 2_000
_COLUMNS = _WORKER.c.keys()
_SEEN = DriverSql(
    sa.update(_WORKER)
    .where(_WORKER.c.worker_id == sa.bindparam("wanted"), _WORKER.c.last_seen_ms < sa.bindparam("before_ms"))
    .values(last_seen_ms=sa.bindparam("now_ms"))
)
_LIVE = DriverSql(
    sa.select(_WORKER).where(_WORKER.c.gone_ms.is_(None), _WORKER.c.last_seen_ms >= sa.bindparam("since_ms"))
)


def _to_row(found: sa.RowMapping | Mapping[str, Any]) -> WorkerRow:
    columns = {**found, "facts": json.loads(found["facts"]), "is_draining": bool(found["is_draining"])}
    return WorkerRow(**columns)


class SqlWorkers:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def get(self, worker_id: str) -> WorkerRow | None:
        query = sa.select(_WORKER).where(_WORKER.c.worker_id == worker_id)
        found = self._connection.execute(query).mappings().first()
        return None if found is None else _to_row(found)

    def put(self, row: WorkerRow) -> None:
        said: dict[str, Any] = {
            "host": row.host,
            "slots": row.slots,
            "image": row.image,
            "facts": json.dumps(row.facts),
            "last_seen_ms": self._now_ms,
            "gone_ms": None,
        }
        change = sa.update(_WORKER).where(_WORKER.c.worker_id == row.worker_id).values(**said)
        if self._connection.execute(change).rowcount == 0:
            made = {"worker_id": row.worker_id, "first_seen_ms": self._now_ms, "is_draining": False, **said}
            self._connection.execute(sa.insert(_WORKER), made)

    def seen(self, worker_id: str) -> None:
        before_ms = self._now_ms - _FRESH_MS
        _SEEN.one(self._connection, {"wanted": worker_id, "before_ms": before_ms, "now_ms": self._now_ms})

    def set_draining(self, worker_id: str, *, is_draining: bool) -> None:
        self._change(worker_id, is_draining=is_draining)

    def mark_gone(self, worker_id: str) -> None:
        self._change(worker_id, gone_ms=self._now_ms)

    def _change(self, worker_id: str, **columns: Any) -> None:
        change = sa.update(_WORKER).where(_WORKER.c.worker_id == worker_id)
        self._connection.execute(change.values(**columns))

    def all(self, *, limit: int) -> list[WorkerRow]:
        is_gone = sa.case((_WORKER.c.gone_ms.is_(None), 0), else_=1)
        query = sa.select(_WORKER).order_by(is_gone, _WORKER.c.last_seen_ms.desc(), _WORKER.c.worker_id)
        return [_to_row(found) for found in self._connection.execute(query.limit(limit)).mappings()]

    def live(self, *, seen_since_ms: int) -> list[WorkerRow]:
        found = _LIVE.all(self._connection, {"since_ms": seen_since_ms})
        return [_to_row(dict(zip(_COLUMNS, row, strict=True))) for row in found]

    def forget(self, *, gone_before_ms: int) -> None:
        self._connection.execute(sa.delete(_WORKER).where(_WORKER.c.gone_ms < gone_before_ms))


class SqlDuties:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def take(self, name: str, *, holder: str, ttl_ms: int, instead_of: str = "") -> bool:
        until_ms = self._now_ms + ttl_ms
        kept = self._change(name, _DUTY.c.holder == holder, until_ms=until_ms)
        if kept:
            return True
        is_free = sa.or_(_DUTY.c.until_ms <= self._now_ms, _DUTY.c.holder == instead_of)
        taken = self._change(name, is_free, holder=holder, until_ms=until_ms, fence=_DUTY.c.fence + 1)
        if taken:
            return True
        if self.holder(name):
            return False
        self._connection.execute(
            sa.insert(_DUTY), {"name": name, "holder": holder, "until_ms": until_ms, "fence": 1}
        )
        return True

    def _change(self, name: str, where: sa.ColumnElement[bool], **columns: Any) -> bool:
        change = sa.update(_DUTY).where(_DUTY.c.name == name, where).values(**columns)
        return self._connection.execute(change).rowcount > 0

    def holder(self, name: str) -> str:
        query = sa.select(_DUTY.c.holder).where(_DUTY.c.name == name)
        return self._connection.execute(query).scalar() or ""

    def leave(self, name: str, *, holder: str) -> None:
        self._change(name, _DUTY.c.holder == holder, until_ms=0)
