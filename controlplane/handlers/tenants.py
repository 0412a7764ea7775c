"""Tenants: made and changed by those who look after all of them; each may look at its own."""

from dataclasses import replace
from typing import Any

from controlplane.domain.identity import Caller
from controlplane.errors import InvalidRequest, NotFound
from controlplane.handlers.audits import enter
from controlplane.handlers.permits import require
from controlplane.ports import Desk
from controlplane.ports_access import TenantRow


def create(desk: Desk, row: TenantRow, *, caller: Caller) -> TenantRow:
    """Enter a tenant that is not there yet."""
    with desk.store.write() as tx:
        require(tx, caller, "tenant.manage", tenant_id="")
        if tx.tenants.get(row.tenant_id) is not None:
            raise InvalidRequest(f"there is a tenant {row.tenant_id!r} already: change it, or name another")
        tx.tenants.put(row)
        enter(tx, caller, "tenant.create", target=row.tenant_id, tenant_id=row.tenant_id)
        made = tx.tenants.get(row.tenant_id)
    assert made is not None
    return made


def change(desk: Desk, tenant_id: str, *, changes: dict[str, Any], caller: Caller) -> TenantRow:
    """Change what is named in `changes`; a tenant does not change itself."""
    with desk.store.write() as tx:
        row = tx.tenants.get(tenant_id) if caller.scope.covers(tenant_id) else None
        if row is None:
            raise NotFound(f"there is no tenant {tenant_id!r}")
        require(tx, caller, "tenant.manage", tenant_id="")
        changed = replace(row, **changes)
        tx.tenants.put(changed)
        said = ", ".join(f"{name}={value!r}" for name, value in sorted(changes.items()))
        enter(tx, caller, "tenant.change", target=tenant_id, tenant_id=tenant_id, reason=said)
    desk.store.announce()
    return changed


def page(desk: Desk, *, caller: Caller, after: str, limit: int) -> list[TenantRow]:
    """By id; one's own, or all of them for those who look after all."""
    with desk.store.read() as tx:
        require(tx, caller, "job.read", tenant_id=caller.scope.tenant_id or "")
        return tx.tenants.page(scope=caller.scope, after=after, limit=limit)
