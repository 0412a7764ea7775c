"""Whether a caller may do something to what belongs to a tenant, decided in the transaction that does it."""

from controlplane.domain.identity import Caller, Capability
from controlplane.errors import Denied
from controlplane.ports import Transaction


def require(tx: Transaction, caller: Caller, capability: Capability, *, tenant_id: str) -> None:
    """Let pass what the caller's roles allow within its own scope; Denied otherwise."""
    _ = tx
    if caller.scope.covers(tenant_id) and caller.may_by_role(capability):
        return
    raise Denied(
        f"{caller.name} may not do this: it needs {capability!r}, "
        f"which none of its roles gives ({', '.join(sorted(caller.roles)) or 'it has none'})"
    )
