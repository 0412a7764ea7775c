"""Permissions as data: what is granted or taken away beyond roles, to whom, for what, until when. Pure; deny wins."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from controlplane.domain.identity import Caller, Capability

Effect = Literal["allow", "deny"]


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """What a permission is limited to. None: this is not looked at."""

    #: Labels that the job has, all of them.
    labels: tuple[tuple[str, str], ...] | None = None
    #: An allowance is for jobs all of whose models are among these, a denial for jobs with any of them.
    models: tuple[str, ...] | None = None
    #: An allowance is for jobs that cannot cost more, a denial for jobs that can.
    max_usd: Decimal | None = None
    task_ids: tuple[str, ...] | None = None

    @property
    def are_any(self) -> bool:
        return any(value is not None for value in (self.labels, self.models, self.max_usd, self.task_ids))


@dataclass(frozen=True, kw_only=True)
class Permission:
    """One row of permissions."""

    permission_id: str
    #: Whose; empty: every tenant's.
    tenant_id: str
    #: A principal, or `role:NAME`.
    subject: str
    capability: Capability
    effect: Effect
    constraints: Constraints = Constraints()
    created_ms: int = 0
    created_by: str = ""
    expires_ms: int | None = None
    revoked_ms: int | None = None
    revoked_by: str = ""

    def is_in_force(self, now_ms: int) -> bool:
        return self.revoked_ms is None and (self.expires_ms is None or now_ms < self.expires_ms)


@dataclass(frozen=True, kw_only=True)
class About:
    """What an act is about, as far as constraints look at it. None: it is not known, and then nothing is allowed by it."""

    labels: frozenset[tuple[str, str]] | None = None
    models: frozenset[str] | None = None
    task_id: str | None = None
    #: Whether `max_usd` is known; None in it means: without a limit.
    is_priced: bool = False
    max_usd: Decimal | None = None


UNKNOWN = About()


@dataclass(frozen=True, kw_only=True)
class Decision:
    is_allowed: bool
    #: The permission that decided; empty: the roles did.
    permission_id: str = ""


def subjects_of(caller: Caller) -> frozenset[str]:
    """Under which names a caller may be given something."""
    return frozenset({caller.name, *(f"role:{role}" for role in caller.roles)})


def decide(
    caller: Caller,
    capability: Capability,
    permissions: Iterable[Permission],
    *,
    about: About = UNKNOWN,
    now_ms: int,
) -> Decision:
    """A denial that fits wins; else an allowance that fits, or a role, lets pass. All of it within the caller's tenant."""
    subjects = subjects_of(caller)
    fitting = [
        each
        for each in permissions
        if each.capability == capability
        and each.subject in subjects
        and each.is_in_force(now_ms)
        and _fits(each, about)
    ]
    for effect in ("deny", "allow"):
        found = next((each for each in fitting if each.effect == effect), None)
        if found is not None:
            return Decision(is_allowed=effect == "allow", permission_id=found.permission_id)
    return Decision(is_allowed=caller.may_by_role(capability))


def _fits(permission: Permission, about: About) -> bool:
    """Whether what an act is about is what the permission is about. What is not known fits denials only."""
    checks = (
        _fits_labels(permission, about),
        _fits_models(permission, about),
        _fits_cost(permission, about),
        _fits_task(permission, about),
    )
    return all(permission.effect == "deny" if check is None else check for check in checks)


def _fits_labels(permission: Permission, about: About) -> bool | None:
    wanted = permission.constraints.labels
    if wanted is None:
        return True
    return None if about.labels is None else set(wanted) <= about.labels


def _fits_models(permission: Permission, about: About) -> bool | None:
    named = permission.constraints.models
    if named is None:
        return True
    if about.models is None:
        return None
    return about.models <= set(named) if permission.effect == "allow" else bool(about.models & set(named))


def _fits_cost(permission: Permission, about: About) -> bool | None:
    most = permission.constraints.max_usd
    if most is None:
        return True
    if not about.is_priced:
        return None
    is_within = about.max_usd is not None and about.max_usd <= most
    return is_within if permission.effect == "allow" else not is_within


def _fits_task(permission: Permission, about: About) -> bool | None:
    named = permission.constraints.task_ids
    if named is None:
        return True
    return None if about.task_id is None else about.task_id in named
