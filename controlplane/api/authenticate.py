"""Who asks: by a key of ours, by a token of somebody who is trusted to issue them, or, embedded on loopback, by nothing at all."""

from dataclasses import dataclass
from typing import Protocol

from controlplane.api.problems import Unauthenticated
from controlplane.domain.identity import Caller, owner
from controlplane.errors import Denied
from controlplane.handlers import keys
from controlplane.ports import Desk

_KEY = "cst_"


class Tokens(Protocol):
    """Reads tokens that others issue."""

    def caller(self, token: str) -> Caller | None:
        """None: this is no token that is trusted."""
        ...


@dataclass(frozen=True, kw_only=True)
class Authenticator:
    """Everything that a caller may come with."""

    desk: Desk
    tokens: Tokens | None = None
    #: Who comes with nothing is the owner of the home: for loopback, embedded.
    is_open: bool = False

    def caller(self, header: str | None) -> Caller:
        """Whoever sends this Authorization header."""
        if header is None:
            if self.is_open:
                return owner("operator")
            raise Unauthenticated("the request says nothing of who asks")
        kind, _, token = header.strip().partition(" ")
        token = token.strip()
        if kind.lower() != "bearer" or not token:
            raise Unauthenticated("the Authorization header is no `Bearer` with a key or a token")
        found = self._by_token(token)
        if found is None:
            raise Unauthenticated("this key or token is not valid: unknown, expired or revoked")
        return found

    def _by_token(self, token: str) -> Caller | None:
        if token.startswith(_KEY):
            return keys.verify(self.desk, token)
        found = None if self.tokens is None else self.tokens.caller(token)
        if found is not None:
            self._check_tenant(found)
        return found

    def _check_tenant(self, caller: Caller) -> None:
        """A token may name any tenant; only those that somebody has entered are served."""
        tenant_id = caller.scope.tenant_id
        if tenant_id is None or tenant_id == self.desk.rules.default_tenant:
            return
        with self.desk.store.read() as tx:
            if tx.tenants.get(tenant_id) is None:
                raise Denied(
                    f"the token of {caller.name} is of tenant {tenant_id!r}, which is not served here",
                    capability="job.read",
                    tenant_id=tenant_id,
                )
