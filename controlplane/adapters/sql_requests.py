"""Rows of repeated requests, uploads, and of what a tenant may refer to."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import schema_access
from controlplane.adapters.sql_access import insert_if_new, within
from controlplane.domain.identity import Scope
from controlplane.errors import UnderWay
from controlplane.ports_access import OwnedKind, OwnedRow, RepeatedRow, UploadRow

_REPEATED, _UPLOAD, _OWNED = schema_access.repeated, schema_access.upload, schema_access.owned


class SqlRepeats:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def get(self, *, tenant_id: str, principal: str, key: str) -> RepeatedRow | None:
        query = sa.select(_REPEATED).where(
            _REPEATED.c.tenant_id == tenant_id, _REPEATED.c.principal == principal, _REPEATED.c.key == key
        )
        found = self._connection.execute(query).mappings().first()
        return None if found is None else RepeatedRow(**{**found, "is_done": bool(found["is_done"])})

    def put(self, row: RepeatedRow) -> None:
        columns = asdict(replace(row, at_ms=self._now_ms))
        self._connection.execute(sa.delete(_REPEATED).where(self._is(row), _REPEATED.c.status.is_(None)))
        if not insert_if_new(self._connection, _REPEATED, columns):
            raise UnderWay(f"the request of key {row.key!r} is being carried out")

    def drop(self, row: RepeatedRow) -> None:
        self._connection.execute(
            sa.delete(_REPEATED).where(self._is_own(row), _REPEATED.c.is_done == sa.false())
        )

    def mark_done(self, row: RepeatedRow) -> bool:
        marked = self._connection.execute(sa.update(_REPEATED).where(self._is_own(row)).values(is_done=True))
        return marked.rowcount > 0

    def answer(self, row: RepeatedRow) -> None:
        self._connection.execute(
            sa.update(_REPEATED)
            .where(self._is_own(row))
            .values(is_done=True, status=row.status, body=row.body)
        )

    def purge(self, *, before_ms: int) -> None:
        self._connection.execute(sa.delete(_REPEATED).where(_REPEATED.c.at_ms < before_ms))

    def _is(self, row: RepeatedRow) -> sa.ColumnElement[bool]:
        return sa.and_(
            _REPEATED.c.tenant_id == row.tenant_id,
            _REPEATED.c.principal == row.principal,
            _REPEATED.c.key == row.key,
        )

    def _is_own(self, row: RepeatedRow) -> sa.ColumnElement[bool]:
        return sa.and_(self._is(row), _REPEATED.c.owner == row.owner)


class SqlUploads:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def get(self, upload_id: str, *, scope: Scope) -> UploadRow | None:
        query = sa.select(_UPLOAD).where(_UPLOAD.c.upload_id == upload_id)
        return self._first(within(query, _UPLOAD.c.tenant_id, scope))

    def open_of(self, *, tenant_id: str, digest: str) -> UploadRow | None:
        return self._first(
            sa.select(_UPLOAD).where(
                _UPLOAD.c.tenant_id == tenant_id,
                _UPLOAD.c.content_digest == digest,
                _UPLOAD.c.done_ms.is_(None),
            )
        )

    def _first(self, query: sa.Select[Any]) -> UploadRow | None:
        found = self._connection.execute(query).mappings().first()
        return None if found is None else _to_upload(found)

    def add(self, row: UploadRow) -> None:
        self._connection.execute(sa.insert(_UPLOAD), asdict(replace(row, at_ms=self._now_ms)))

    def save(self, row: UploadRow) -> None:
        columns = {"received_bytes": row.received_bytes, "done_ms": row.done_ms}
        self._connection.execute(
            sa.update(_UPLOAD).where(_UPLOAD.c.upload_id == row.upload_id).values(**columns)
        )

    def drop(self, upload_id: str) -> None:
        self._connection.execute(sa.delete(_UPLOAD).where(_UPLOAD.c.upload_id == upload_id))

    def bytes_of(self, tenant_id: str) -> int:
        total = sa.select(sa.func.coalesce(sa.func.sum(_UPLOAD.c.size_bytes), 0))
        return int(self._connection.execute(total.where(_UPLOAD.c.tenant_id == tenant_id)).scalar_one())

    def stale(self, *, before_ms: int, limit: int) -> list[UploadRow]:
        query = (
            sa.select(_UPLOAD)
            .where(_UPLOAD.c.done_ms.is_(None), _UPLOAD.c.at_ms < before_ms)
            .order_by(_UPLOAD.c.at_ms)
            .limit(limit)
        )
        return [_to_upload(found) for found in self._connection.execute(query).mappings()]


def _to_upload(found: Mapping[Any, Any]) -> UploadRow:
    return UploadRow(**found)


class SqlOwned:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def get(self, *, tenant_id: str, kind: OwnedKind, digest: str) -> OwnedRow | None:
        query = sa.select(_OWNED).where(
            _OWNED.c.tenant_id == tenant_id, _OWNED.c.kind == kind, _OWNED.c.digest == digest
        )
        found = self._connection.execute(query).mappings().first()
        return None if found is None else OwnedRow(**found)

    def add(self, row: OwnedRow) -> None:
        insert_if_new(self._connection, _OWNED, asdict(replace(row, at_ms=self._now_ms)))
