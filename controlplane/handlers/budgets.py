"""Budgets of tenants: looked at by each, set by those who may."""

from controlplane.domain.budget import Account, Limits
from controlplane.domain.identity import Caller
from controlplane.errors import NotFound
from controlplane.handlers.apply import tenant_budget
from controlplane.handlers.audits import enter
from controlplane.handlers.permits import require
from controlplane.ports import Desk, Transaction


def page(desk: Desk, *, caller: Caller, after: str, limit: int) -> list[tuple[str, Account]]:
    """Tenants by their ids with their accounts; one's own, or all for those who look after all."""
    with desk.store.read() as tx:
        require(tx, caller, "budget.read", tenant_id=caller.scope.tenant_id or "")
        own = caller.scope.tenant_id
        if own is not None:
            return [(own, tx.budgets.get(tenant_budget(own)))] if after < own else []
        rows = tx.tenants.page(scope=caller.scope, after=after, limit=limit)
        return [(row.tenant_id, tx.budgets.get(tenant_budget(row.tenant_id))) for row in rows]


def set_limits(desk: Desk, tenant_id: str, *, limits: Limits, caller: Caller) -> Account:
    """Bound what a tenant may use from now on; what it has used stays."""
    with desk.store.write() as tx:
        if not caller.scope.covers(tenant_id) or not _is_known(tx, desk, tenant_id):
            raise NotFound(f"there is no tenant {tenant_id!r}")
        # No tenant raises its own.
        require(tx, caller, "budget.set", tenant_id="")
        tx.budgets.set_limits(tenant_budget(tenant_id), limits)
        enter(tx, caller, "budget.set", target=tenant_id, tenant_id=tenant_id, reason=str(limits))
        account = tx.budgets.get(tenant_budget(tenant_id))
    desk.store.announce()
    return account


def _is_known(tx: Transaction, desk: Desk, tenant_id: str) -> bool:
    return tenant_id == desk.rules.default_tenant or tx.tenants.get(tenant_id) is not None
