"""
Errors of the control plane, sorted by what must happen next.

ControlPlaneError
├─ Rejected             the caller must change the request
│  ├─ InvalidRequest    … its content
│  ├─ NotFound          … what it names
│  ├─ Denied            … or obtain a permission
│  └─ OverBudget        … or ask for less
├─ Stale                someone moved on: read again, then decide
│  ├─ FenceStale        the lease behind this write is not the current one
│  └─ VersionConflict   the record changed since it was read
├─ Tampered             a hash chain does not hold: look before anything else
└─ Unavailable          nobody's decision: wait and try again
"""  # noqa: D212


class ControlPlaneError(Exception):
    """Something the control plane could not or would not do."""


class Rejected(ControlPlaneError):
    """The request cannot be carried out as it is."""


class InvalidRequest(Rejected):
    """The request is malformed or contradicts itself."""


class NotFound(Rejected):
    """Nothing of that name is here."""


class Denied(Rejected):
    """The caller may not do this."""


class OverBudget(Rejected):
    """A limit would be passed."""


class Stale(ControlPlaneError):
    """Someone else moved on in the meantime."""


class FenceStale(Stale):
    """The lease behind this write is not the current one."""


class VersionConflict(Stale):
    """The record changed since it was read."""


class Tampered(ControlPlaneError):
    """A hash chain does not hold."""


class Unavailable(ControlPlaneError):
    """Try again later."""
