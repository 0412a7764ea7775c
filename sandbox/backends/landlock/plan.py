"""What one degraded sandbox is to be made of: the plan of the namespaces backend, with places on the host's disk."""

from dataclasses import dataclass

from sandbox.backends.namespaces.plan import Plan


@dataclass(frozen=True, kw_only=True)
class LandlockPlan(Plan):
    # The session's own directory on the host: the only place it may write.
    workspace: str
