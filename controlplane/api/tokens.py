"""Tokens of an issuer that is trusted (OpenID Connect): signed with its keys, for us, now; their claims say who, of which tenant."""

import ipaddress
import json
import logging
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import jwt

from controlplane.config import Settings
from controlplane.domain.identity import ROLES, Caller, Role, Scope
from controlplane.errors import InvalidRequest, Unavailable

log = logging.getLogger(__name__)

#: Only signatures that need the issuer's secret: neither none at all, nor one that a public key could make.
ALGORITHMS = ("RS256", "ES256")
_LONGEST = 16_384
_MOST_BYTES = 1_000_000
_TIMEOUT_SECONDS = 5.0
#: Keys are read again after this time, so that one that was withdrawn is no longer good.
_FRESH_SECONDS = 300.0
#: Unknown keys are looked for so often at most; keys that could not be read again are good for so long.
_AGAIN_SECONDS = 10.0
_STALE_SECONDS = 3_600.0


class KeySet:
    """The public keys of an issuer, from a URL or a file, kept for a while."""

    def __init__(self, place: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        _check_place(place)
        self._place = place
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: dict[str, jwt.PyJWK] = {}
        self._read_at: float | None = None
        self._tried_at: float | None = None

    def find(self, key_id: str) -> jwt.PyJWK | None:
        """The key of this id; None when the issuer has none."""
        with self._lock:
            if self._is_due(key_id):
                self._refresh()
            if self._read_at is None or self._clock() - self._read_at > _STALE_SECONDS:
                raise Unavailable(
                    "the keys of the token issuer cannot be read: try again later, or use a key"
                )
            return self._keys.get(key_id)

    def _is_due(self, key_id: str) -> bool:
        now = self._clock()
        if self._tried_at is not None and now - self._tried_at < _AGAIN_SECONDS:
            return False
        is_old = self._read_at is None or now - self._read_at > _FRESH_SECONDS
        return is_old or key_id not in self._keys

    def _refresh(self) -> None:
        self._tried_at = self._clock()
        try:
            self._keys = _keys_in(self._read())
            self._read_at = self._tried_at
        except (OSError, ValueError, jwt.PyJWTError) as error:
            log.warning("the keys of the token issuer at %r cannot be read: %s", self._place, error)

    def _read(self) -> bytes:
        if "://" not in self._place:
            return Path(self._place).read_bytes()
        with urllib.request.urlopen(self._place, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - checked
            body: bytes = answer.read(_MOST_BYTES)
        return body


def _keys_in(body: bytes) -> dict[str, jwt.PyJWK]:
    """Keys for signatures, by their ids. Those of kinds that are not taken are left out."""
    found: dict[str, jwt.PyJWK] = {}
    for each in json.loads(body)["keys"]:
        if (
            not isinstance(each, dict)
            or each.get("use", "sig") != "sig"
            or not isinstance(each.get("kid"), str)
        ):
            continue
        algorithm = {"RSA": "RS256", "EC": "ES256"}.get(str(each.get("kty")))
        if algorithm is None or each.get("alg", algorithm) != algorithm:
            continue
        found[each["kid"]] = jwt.PyJWK(each, algorithm=algorithm)
    return found


def _check_place(place: str) -> None:
    url = urlsplit(place)
    if "://" not in place or url.scheme == "https":
        return
    if url.scheme != "http" or not is_loopback(url.hostname or ""):
        raise InvalidRequest(
            f"oidc_jwks: keys from {place!r} could be anybody's on the way: use https, or a file"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine is reached, or can reach it, under this name."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True)
class Claims:
    """Where a token says who it is of."""

    tenant: str = "tenant"
    roles: str = "roles"
    name: str = "sub"
    #: Our role for each of theirs; None: they have the same names.
    by_name: Mapping[str, Role] | None = None


@dataclass(frozen=True, kw_only=True)
class TrustedTokens:
    """Reads tokens of one issuer."""

    issuer: str
    audience: str
    keys: KeySet
    claims: Claims = field(default_factory=Claims)
    leeway_seconds: float = 30.0

    def caller(self, token: str) -> Caller | None:
        """Who a token is of; None when it is not one to be trusted."""
        try:
            claims = self._verified(token)
        except jwt.PyJWTError as error:
            log.info("a token was refused: %s", error)
            return None
        tenant_id, name = claims.get(self.claims.tenant), claims.get(self.claims.name)
        if not _is_name(tenant_id) or not _is_name(name):
            log.info("a token was refused: its claims name no tenant, or nobody")
            return None
        return Caller(
            name=str(name),
            scope=Scope(str(tenant_id)),
            roles=self._roles(claims.get(self.claims.roles)),
            credential_id=f"token:{claims.get('jti') or name}"[:200],
        )

    def _verified(self, token: str) -> dict[str, Any]:
        if len(token) > _LONGEST:
            raise jwt.InvalidTokenError("it is too long")
        header = jwt.get_unverified_header(token)
        if header.get("alg") not in ALGORITHMS or not isinstance(header.get("kid"), str):
            raise jwt.InvalidTokenError("its algorithm is not taken, or it names no key")
        key = self.keys.find(header["kid"])
        if key is None or key.algorithm_name != header["alg"]:
            raise jwt.InvalidTokenError("the issuer has no such key")
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=[header["alg"]],
            audience=self.audience,
            issuer=self.issuer,
            leeway=self.leeway_seconds,
            options={"require": ["exp", "iss", "aud"]},
        )
        return claims

    def _roles(self, given: object) -> frozenset[Role]:
        names = given.split() if isinstance(given, str) else given if isinstance(given, list) else []
        ours: Mapping[str, Role] = (
            {role: role for role in ROLES} if self.claims.by_name is None else self.claims.by_name
        )
        return frozenset(ours[name] for name in names if isinstance(name, str) and name in ours)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable() and value.isascii()


def tokens_of(settings: Settings) -> TrustedTokens | None:
    """As the settings say; None without an issuer."""
    if settings.oidc_issuer is None:
        return None
    if settings.oidc_audience is None or settings.oidc_jwks is None:
        raise InvalidRequest("oidc_issuer: tokens need oidc_audience and oidc_jwks too: set both")
    claims = Claims(
        tenant=settings.oidc_tenant_claim,
        roles=settings.oidc_roles_claim,
        name=settings.oidc_name_claim,
        by_name=None if settings.oidc_roles is None else _mapping(settings.oidc_roles),
    )
    return TrustedTokens(
        issuer=settings.oidc_issuer,
        audience=settings.oidc_audience,
        keys=KeySet(settings.oidc_jwks),
        claims=claims,
        leeway_seconds=settings.oidc_leeway_seconds,
    )


def _mapping(text: str) -> dict[str, Role]:
    pairs = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    wrong = [ours for _, _, ours in pairs if ours not in ROLES]
    if wrong:
        raise InvalidRequest(f"oidc_roles: there is no role {wrong[0]!r}: there are {', '.join(ROLES)}")
    return {theirs: cast("Role", ours) for theirs, _, ours in pairs}
