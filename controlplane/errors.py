"""
Errors of the control plane, sorted by what must happen next.

ControlPlaneError
├─ Rejected             the caller must change the request
│  ├─ InvalidRequest    … its content
│  │  ├─ KeyReused      … or the idempotency key, which names another request
│  │  ├─ BadCursor      … the cursor, which no answer gave
│  │  └─ TooLarge       … its size
│  ├─ NotFound          … what it names
│  ├─ Denied            … or obtain a permission
│  └─ OverBudget        … or ask for less
├─ Stale                someone moved on: read again, then decide
│  ├─ FenceStale        the lease behind this write is not the current one
│  ├─ VersionConflict   the record changed since it was read
│  ├─ NotAsSeen         … or since the caller saw it, who said what it must be
│  └─ UnderWay          the same request is being carried out, or its answer was lost
├─ Tampered             a hash chain does not hold: look before anything else
└─ Unavailable          nobody's decision: wait and try again
"""  # noqa: D212


class ControlPlaneError(Exception):
    """Something the control plane could not or would not do."""


class Rejected(ControlPlaneError):
    """The request cannot be carried out as it is."""


class InvalidRequest(Rejected):
    """The request is malformed or contradicts itself."""


class KeyReused(InvalidRequest):
    """The idempotency key was used for another request."""


class BadCursor(InvalidRequest):
    """A cursor that no answer to this list gave."""


class TooLarge(InvalidRequest):
    """More than is taken at once."""


class NotFound(Rejected):
    """Nothing of that name is here."""


class Denied(Rejected):
    """The caller may not do this. What it wanted, and whose it is, goes on record."""

    def __init__(self, message: str, *, capability: str = "", tenant_id: str = "") -> None:
        super().__init__(message)
        self.capability = capability
        self.tenant_id = tenant_id


class OverBudget(Rejected):
    """A limit would be passed."""


class Stale(ControlPlaneError):
    """Someone else moved on in the meantime."""


class FenceStale(Stale):
    """The lease behind this write is not the current one."""


class VersionConflict(Stale):
    """The record changed since it was read."""


class NotAsSeen(Stale):
    """The record is not what the caller saw of it. Trying again changes nothing."""


class UnderWay(Stale):
    """The same request is being carried out, or was and its answer is lost."""

    def __init__(self, message: str, *, is_lost: bool = False) -> None:
        super().__init__(message)
        self.is_lost = is_lost


class Tampered(ControlPlaneError):
    """A hash chain does not hold."""


class Unavailable(ControlPlaneError):
    """Try again later."""
