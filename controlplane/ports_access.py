"""What access needs of the store: keys. Rows are plain values."""

from dataclasses import dataclass
from typing import Protocol

from controlplane.domain.identity import Role


@dataclass(frozen=True, kw_only=True)
class KeyRow:
    """A key of the API: whose it is and what it may do. Its secret is not here."""

    key_id: str
    #: Empty: of no tenant, for those who look after all of them.
    tenant_id: str
    principal: str
    roles: frozenset[Role]
    secret_hash: str
    note: str = ""
    created_ms: int
    created_by: str
    expires_ms: int | None = None
    revoked_ms: int | None = None
    revoked_by: str = ""
    used_ms: int | None = None

    def is_valid(self, now_ms: int) -> bool:
        return self.revoked_ms is None and (self.expires_ms is None or now_ms < self.expires_ms)


class Keys(Protocol):
    def add(self, row: KeyRow) -> None: ...

    def get(self, key_id: str) -> KeyRow | None: ...

    def revoke(self, key_id: str, *, by: str) -> None: ...

    def mark_used(self, key_id: str) -> None: ...
