"""Keys as rows: what is kept of each is a hash, from which no key can be made."""

from collections.abc import Mapping
from typing import Any, cast

import sqlalchemy as sa

from controlplane.adapters import schema_access
from controlplane.domain.identity import Role, Scope
from controlplane.ports_access import KeyRow

_KEY = schema_access.api_key


class SqlKeys:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def add(self, row: KeyRow) -> None:
        columns = {name: getattr(row, name) for name in _KEY.c.keys()}  # noqa: SIM118 - columns, not a dict
        self._connection.execute(sa.insert(_KEY), {**columns, "roles": " ".join(sorted(row.roles))})

    def get(self, key_id: str) -> KeyRow | None:
        found = self._connection.execute(sa.select(_KEY).where(_KEY.c.key_id == key_id)).mappings().first()
        return None if found is None else _to_row(found)

    def page(self, *, scope: Scope, after: str, limit: int) -> list[KeyRow]:
        query = sa.select(_KEY).where(_KEY.c.key_id > after).order_by(_KEY.c.key_id).limit(limit)
        if scope.tenant_id is not None:
            query = query.where(_KEY.c.tenant_id == scope.tenant_id)
        return [_to_row(found) for found in self._connection.execute(query).mappings()]

    def any_valid(self) -> bool:
        query = sa.select(_KEY).where(_KEY.c.revoked_ms.is_(None))
        return any(
            _to_row(found).is_valid(self._now_ms) for found in self._connection.execute(query).mappings()
        )

    def revoke(self, key_id: str, *, by: str) -> None:
        self._set(key_id, revoked_ms=self._now_ms, revoked_by=by)

    def mark_used(self, key_id: str) -> None:
        self._set(key_id, used_ms=self._now_ms)

    def _set(self, key_id: str, **columns: Any) -> None:
        self._connection.execute(sa.update(_KEY).where(_KEY.c.key_id == key_id).values(**columns))


def _to_row(found: Mapping[Any, Any]) -> KeyRow:
    columns = {str(name): value for name, value in found.items()}
    roles = frozenset(cast("Role", role) for role in columns["roles"].split())
    return KeyRow(**{**columns, "roles": roles})
