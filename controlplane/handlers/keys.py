"""Keys: issued once, kept as hashes, revoked at once. A key is `cst_<key_id>_<secret>`; the secret is nowhere in the store."""

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from contextlib import suppress

from controlplane.domain.identity import EVERY_TENANT, ROLES, Caller, Role, Scope
from controlplane.errors import InvalidRequest, NotFound, Unavailable
from controlplane.handlers.audits import enter
from controlplane.handlers.permits import require
from controlplane.ports import Desk, Transaction
from controlplane.ports_access import KeyRow, TenantRow

_PREFIX = "cst"
#: Longer than any key: what is longer is not looked up.
_LONGEST = 200
#: Compared against when there is no such key, so that an answer takes as long as for one that there is.
_NOBODY = hashlib.sha256(b"").hexdigest()
#: The last use is kept to the minute: not every request writes.
_USED_MS = 60_000


def issue(
    desk: Desk,
    *,
    principal: str,
    roles: Iterable[Role],
    tenant_id: str,
    caller: Caller,
    expires_ms: int | None = None,
    note: str = "",
) -> tuple[KeyRow, str]:
    """A new key and its whole text, which is never shown again. Without a tenant it is for those who look after all of them."""
    given = frozenset(roles)
    if not given or not given <= ROLES.keys():
        raise InvalidRequest(f"a key needs one or more of these roles: {', '.join(ROLES)}")
    key_id, secret = secrets.token_hex(8), secrets.token_hex(32)
    with desk.store.write() as tx:
        require(tx, caller, "key.manage", tenant_id=tenant_id)
        _check(tx, caller, given, tenant_id=tenant_id, expires_ms=expires_ms)
        row = KeyRow(
            key_id=key_id,
            tenant_id=tenant_id,
            principal=principal,
            roles=given,
            secret_hash=_hashed(secret),
            note=note,
            created_ms=tx.now_ms,
            created_by=caller.name,
            expires_ms=expires_ms,
        )
        tx.keys.add(row)
        said = f"to {principal} as {', '.join(sorted(given))}"
        enter(tx, caller, "key.issue", target=key_id, tenant_id=tenant_id, reason=said)
    return row, f"{_PREFIX}_{key_id}_{secret}"


def _check(
    tx: Transaction, caller: Caller, roles: frozenset[Role], *, tenant_id: str, expires_ms: int | None
) -> None:
    """Nobody makes a key that can do more than its maker; a tenant that is named for the first time is entered."""
    if expires_ms is not None and expires_ms <= tx.now_ms and not caller.is_owner:
        raise InvalidRequest("the key would end before it begins: name a later time")
    beyond = [role for role in sorted(roles) if not all(map(caller.may_grant, ROLES[role]))]
    if beyond:
        raise InvalidRequest(f"{caller.name} cannot give {', '.join(beyond)}, which can do more than itself")
    if tenant_id and tx.tenants.get(tenant_id) is None:
        tx.tenants.put(TenantRow(tenant_id=tenant_id, name=tenant_id))


def page(desk: Desk, *, caller: Caller, after: str, limit: int) -> list[KeyRow]:
    """Keys by their ids; no secret is among it."""
    with desk.store.read() as tx:
        require(tx, caller, "key.manage", tenant_id=caller.scope.tenant_id or "")
        return tx.keys.page(scope=caller.scope, after=after, limit=limit)


def verify(desk: Desk, token: str) -> Caller | None:
    """Whoever holds this key; None when there is no such key, or when it has expired or was revoked."""
    prefix, _, rest = token.partition("_")
    key_id, _, secret = rest.partition("_")
    if prefix != _PREFIX or not key_id or not secret or len(token) > _LONGEST or not token.isascii():
        return None
    with desk.store.read() as tx:
        row, now_ms = tx.keys.get(key_id), tx.now_ms
    # Compared in any case, and in a time that tells nothing.
    is_right = hmac.compare_digest(_NOBODY if row is None else row.secret_hash, _hashed(secret))
    if row is None or not is_right or not row.is_valid(now_ms):
        return None
    if row.used_ms is None or row.used_ms < now_ms - _USED_MS:
        # A store that takes no writes now still knows who this is.
        with suppress(Unavailable), desk.store.write("normal") as tx:
            tx.keys.mark_used(key_id)
    return Caller(
        name=row.principal,
        scope=Scope(row.tenant_id) if row.tenant_id else EVERY_TENANT,
        roles=row.roles,
        credential_id=key_id,
    )


def revoke(desk: Desk, key_id: str, *, caller: Caller) -> KeyRow:
    """End a key for good. One that was revoked before is left as it is."""
    with desk.store.write() as tx:
        row = tx.keys.get(key_id)
        if row is None or not caller.scope.covers(row.tenant_id):
            raise NotFound(f"there is no key {key_id!r}")
        require(tx, caller, "key.manage", tenant_id=row.tenant_id)
        if row.revoked_ms is None:
            tx.keys.revoke(key_id, by=caller.name)
            enter(tx, caller, "key.revoke", target=key_id, tenant_id=row.tenant_id)
        revoked = tx.keys.get(key_id)
    assert revoked is not None
    return revoked


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
