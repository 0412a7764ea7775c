"""Permissions beside roles: given, listed, revoked. Nobody gives what they do not have."""

from controlplane.domain.identity import Caller
from controlplane.domain.permissions import Permission
from controlplane.errors import InvalidRequest, NotFound
from controlplane.handlers.audits import enter
from controlplane.handlers.permits import require
from controlplane.ports import Desk


def give(desk: Desk, permission: Permission, *, caller: Caller) -> Permission:
    """Enter a permission; it is in force with the next act."""
    made = permission
    with desk.store.write() as tx:
        require(tx, caller, "key.manage", tenant_id=made.tenant_id)
        if made.expires_ms is not None and made.expires_ms <= tx.now_ms:
            raise InvalidRequest("the permission would end before it begins: name a later time")
        if made.effect == "allow" and not caller.may_grant(made.capability):
            raise InvalidRequest(
                f"{caller.name} cannot give {made.capability!r}, which it does not have: ask an administrator"
            )
        tx.permissions.add(made)
        said = f"{made.effect} {made.capability} to {made.subject}"
        enter(
            tx,
            caller,
            "permission.give",
            target=made.permission_id,
            tenant_id=made.tenant_id,
            reason=said,
        )
        given = tx.permissions.get(made.permission_id, scope=caller.scope)
    assert given is not None
    return given


def revoke(desk: Desk, permission_id: str, *, caller: Caller) -> Permission:
    """End a permission for good. One that was revoked before is left as it is."""
    with desk.store.write() as tx:
        found = tx.permissions.get(permission_id, scope=caller.scope)
        if found is None:
            raise NotFound(f"there is no permission {permission_id!r}")
        require(tx, caller, "key.manage", tenant_id=found.tenant_id)
        if found.revoked_ms is None:
            tx.permissions.revoke(permission_id, by=caller.name)
            enter(tx, caller, "permission.revoke", target=permission_id, tenant_id=found.tenant_id)
        revoked = tx.permissions.get(permission_id, scope=caller.scope)
    assert revoked is not None
    return revoked


def page(desk: Desk, *, caller: Caller, after: str, limit: int) -> list[Permission]:
    with desk.store.read() as tx:
        require(tx, caller, "key.manage", tenant_id=caller.scope.tenant_id or "")
        return tx.permissions.page(scope=caller.scope, after=after, limit=limit)
