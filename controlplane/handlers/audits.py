"""The audit: administrative acts are entered by the transaction that does them, refusals in one of their own, since theirs is undone."""

from controlplane.domain.identity import Caller
from controlplane.errors import Denied
from controlplane.handlers.permits import require
from controlplane.ports import Desk, Transaction
from controlplane.ports_access import AuditRow

_LONGEST = 200


def enter(
    tx: Transaction, caller: Caller, action: str, *, target: str, tenant_id: str, reason: str = ""
) -> None:
    """Enter an act that is being done."""
    tx.audits.add(
        AuditRow(
            tenant_id=tenant_id,
            principal=caller.name,
            action=action,
            target=target[:_LONGEST],
            outcome="done",
            reason=reason,
        )
    )


def refused(desk: Desk, denied: Denied, *, caller: Caller, target: str) -> None:
    """Enter, durably, that something was refused to a caller. It stands with the caller's tenant, whatever it was about."""
    row = AuditRow(
        tenant_id=caller.scope.tenant_id or denied.tenant_id,
        principal=caller.name,
        action=denied.capability,
        target=target[:_LONGEST],
        outcome="refused",
        reason=str(denied),
    )
    with desk.store.write() as tx:
        tx.audits.add(row)


def page(desk: Desk, *, caller: Caller, before: int | None, limit: int) -> list[AuditRow]:
    """Newest first."""
    with desk.store.read() as tx:
        require(tx, caller, "audit.read", tenant_id=caller.scope.tenant_id or "")
        return tx.audits.page(scope=caller.scope, before=before, limit=limit)
