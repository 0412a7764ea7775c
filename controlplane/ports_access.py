"""Ports of who may do what: keys, tenants, permissions, the audit, repeated requests, uploads, and what a tenant may refer to."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, Protocol

from controlplane.domain.identity import Role, Scope
from controlplane.domain.permissions import Permission

Outcome = Literal["done", "refused"]
OwnedKind = Literal["blob", "evidence"]


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


@dataclass(frozen=True, kw_only=True)
class TenantRow:
    tenant_id: str
    name: str = ""
    is_suspended: bool = False
    max_jobs: int | None = None
    weight: int = 1
    created_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class AuditRow:
    """An act of somebody on the control plane, or one that was refused."""

    tenant_id: str
    principal: str
    action: str
    target: str
    outcome: Outcome
    reason: str = ""
    audit_id: int = 0
    at_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class RepeatedRow:
    """A request that named a key, and how it was answered."""

    tenant_id: str
    principal: str
    key: str
    request_digest: str
    #: Who carries it out: a request that took it over is another one.
    owner: str
    #: What was asked for is in the store.
    is_done: bool = False
    #: None while the answer is not kept.
    status: int | None = None
    body: str = ""
    at_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class UploadRow:
    upload_id: str
    tenant_id: str
    principal: str
    content_digest: str
    size_bytes: int
    received_bytes: int = 0
    at_ms: int = 0
    done_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class OwnedRow:
    """Content that a tenant may name."""

    tenant_id: str
    kind: OwnedKind
    digest: str
    facts: str
    at_ms: int = 0


@dataclass(frozen=True, kw_only=True)
class AttemptRow:
    attempt: int
    worker_id: str
    granted_ms: int
    ended_ms: int | None
    outcome: str


class Keys(Protocol):
    def add(self, row: KeyRow) -> None: ...

    def get(self, key_id: str) -> KeyRow | None: ...

    def page(self, *, scope: Scope, after: str, limit: int) -> list[KeyRow]: ...

    def any_valid(self) -> bool:
        """Whether anybody could come with a key."""
        ...

    def revoke(self, key_id: str, *, by: str) -> None: ...

    def mark_used(self, key_id: str) -> None: ...


class Tenants(Protocol):
    def get(self, tenant_id: str) -> TenantRow | None: ...

    def put(self, row: TenantRow) -> None: ...

    def page(self, *, scope: Scope, after: str, limit: int) -> list[TenantRow]: ...


class Permissions(Protocol):
    def of(self, *, tenant_id: str, subjects: Collection[str], capability: str) -> list[Permission]:
        """Those of the tenant and those of every tenant that were not revoked."""
        ...

    def get(self, permission_id: str, *, scope: Scope) -> Permission | None: ...

    def add(self, permission: Permission) -> None: ...

    def revoke(self, permission_id: str, *, by: str) -> None: ...

    def page(self, *, scope: Scope, after: str, limit: int) -> list[Permission]: ...


class Audits(Protocol):
    def add(self, row: AuditRow) -> None: ...

    def page(self, *, scope: Scope, before: int | None, limit: int) -> list[AuditRow]: ...


class Repeats(Protocol):
    def get(self, *, tenant_id: str, principal: str, key: str) -> RepeatedRow | None: ...

    def put(self, row: RepeatedRow) -> None: ...

    def drop(self, row: RepeatedRow) -> None:
        """Forget it, if it is still its owner's and was not carried out."""
        ...

    def mark_done(self, row: RepeatedRow) -> bool:
        """False when somebody else has taken it over."""
        ...

    def answer(self, row: RepeatedRow) -> None: ...

    def purge(self, *, before_ms: int) -> None: ...


class Uploads(Protocol):
    def get(self, upload_id: str, *, scope: Scope) -> UploadRow | None: ...

    def open_of(self, *, tenant_id: str, digest: str) -> UploadRow | None: ...

    def add(self, row: UploadRow) -> None: ...

    def save(self, row: UploadRow) -> None: ...

    def drop(self, upload_id: str) -> None: ...

    def bytes_of(self, tenant_id: str) -> int:
        """What was brought in, and what is on its way."""
        ...

    def stale(self, *, before_ms: int, limit: int) -> list[UploadRow]: ...


class Owned(Protocol):
    def get(self, *, tenant_id: str, kind: OwnedKind, digest: str) -> OwnedRow | None: ...

    def add(self, row: OwnedRow) -> None:
        """Nothing happens when it is there."""
        ...


class Attempts(Protocol):
    def of(self, job_id: str) -> list[AttemptRow]:
        """Leases of a job, the first one first."""
        ...


class TaskList(Protocol):
    def page(self, *, scope: Scope, before: tuple[int, str] | None, limit: int) -> list[tuple[int, str]]:
        """Tasks, newest first: when each was made, and its id."""
        ...


class AccessRows(Protocol):
    """What a transaction holds beside jobs and tasks."""

    keys: Keys
    tenants: Tenants
    permissions: Permissions
    audits: Audits
    repeats: Repeats
    uploads: Uploads
    owned: Owned
    attempts: Attempts
    task_list: TaskList
