"""Who asks, whose rows they may see, and what their roles let them do. Pure; what is granted beyond roles is the store's."""

from dataclasses import dataclass
from typing import Literal

Role = Literal["viewer", "submitter", "operator", "approver", "admin", "worker"]
Capability = Literal[
    "job.read",
    "job.submit",
    "job.stop",
    "job.steer",
    "job.retune",
    "job.operate",
    "job.answer",
    "job.fork",
    "job.import",
    "trace.read",
    "content.read",
    "evidence.read",
    "evidence.write",
    "switch.read",
    "switch.engage",
    "switch.release",
    "worker.read",
    "worker.drain",
    "budget.read",
    "budget.set",
    "audit.read",
    "key.manage",
    "tenant.manage",
    "approval.decide",
    "job.work",
]

_READS: frozenset[Capability] = frozenset(
    {"job.read", "trace.read", "evidence.read", "switch.read", "worker.read", "budget.read"}
)
_SUBMITS: frozenset[Capability] = _READS | {
    "content.read",
    "job.submit",
    "job.stop",
    "job.steer",
    "job.answer",
    "job.fork",
    "evidence.write",
}
#: What each role may do; `content.read` is the text of models and evidence, which viewers do not get.
ROLES: dict[Role, frozenset[Capability]] = {
    "viewer": _READS,
    "submitter": _SUBMITS,
    "operator": _SUBMITS
    | {"job.retune", "job.operate", "switch.engage", "switch.release", "worker.drain", "audit.read"},
    "approver": _READS | {"content.read", "approval.decide", "job.answer"},
    "admin": _SUBMITS
    | {
        "job.retune",
        "job.operate",
        "job.import",
        "switch.engage",
        "switch.release",
        "worker.drain",
        "budget.set",
        "audit.read",
        "key.manage",
        "tenant.manage",
    },
    "worker": frozenset({"job.work"}),
}


@dataclass(frozen=True)
class Scope:
    """Whose rows a query sees: one tenant's; None stands for everybody's, which is for the control plane itself."""

    tenant_id: str | None

    def covers(self, tenant_id: str) -> bool:
        return self.tenant_id is None or self.tenant_id == tenant_id


EVERY_TENANT = Scope(None)


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Who asks for something, known by a credential; the owner of a home in the embedded mode."""

    name: str
    scope: Scope
    roles: frozenset[Role]
    #: The key or token behind it; empty for the owner of a home.
    credential_id: str = ""

    @property
    def is_owner(self) -> bool:
        """Whoever holds the files of a home: known by no credential, and bound by nothing that is written in it."""
        return not self.credential_id and self.scope.tenant_id is None

    def may_grant(self, capability: Capability) -> bool:
        """Administrators give anything within their scope, others only what their roles give them."""
        return "admin" in self.roles or self.may_by_role(capability)

    def may_by_role(self, capability: Capability) -> bool:
        return any(capability in ROLES[role] for role in self.roles)


def owner(name: str) -> Caller:
    """Whoever holds the files of a home may do everything with it."""
    return Caller(name=name, scope=EVERY_TENANT, roles=frozenset({"admin", "approver"}))
