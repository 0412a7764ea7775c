"""Kill switches: what an order covers until it is released. Pure; knows no store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from controlplane.domain.commands import Order
from controlplane.errors import InvalidRequest

ScopeKind = Literal["all", "tenant", "task", "job", "tool", "model", "image"]
_MOST = 1_000
#: Kinds whose names may end in a star.
_WILD = ("tool", "model", "image")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A job, as far as switches look at it."""

    job_id: str
    task_id: str
    tenant_id: str
    models: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    #: What the worker that has it, or wants it, runs.
    image: str = ""


@dataclass(frozen=True, kw_only=True)
class Switch:
    """In force from the commit that engages it to the one that releases it."""

    scope_kind: ScopeKind
    #: A tenant, task, job, tool, model or image; empty for everything.
    scope_id: str = ""
    #: Whose jobs it is limited to; empty: everybody's.
    tenant_id: str = ""
    action: Order
    reason: str
    by: str
    order_id: int = 0
    at_ms: int = 0
    released_ms: int | None = None
    released_by: str = ""
    released_reason: str = ""

    @property
    def mark(self) -> str:
        """The name under which it orders stops."""
        return f"switch:{self.order_id}"

    def covers(self, subject: Subject) -> bool:
        if self.tenant_id and self.tenant_id != subject.tenant_id:
            return False
        named: dict[ScopeKind, tuple[str, ...]] = {
            "tenant": (subject.tenant_id,),
            "task": (subject.task_id,),
            "job": (subject.job_id,),
            "tool": subject.tools,
            "model": subject.models,
            "image": (subject.image,),
        }
        return self.scope_kind == "all" or any(self.names(name) for name in named[self.scope_kind])

    def names(self, name: str) -> bool:
        """Whether a name is the one it is about; a star at its end stands for anything."""
        if self.scope_id.endswith("*") and self.scope_kind in _WILD:
            return bool(name) and name.startswith(self.scope_id[:-1])
        return name == self.scope_id

    def __str__(self) -> str:
        what = "everything" if self.scope_kind == "all" else f"{self.scope_kind} {self.scope_id}"
        return f"a kill switch on {what} is engaged ({self.action}, by {self.by}): {self.reason}"


def check(scope_kind: str, scope_id: str, *, action: str, reason: str) -> None:
    """Refuse what cannot be a switch."""
    if scope_kind not in get_args(ScopeKind):
        raise InvalidRequest(
            f"a kill switch is on one of {', '.join(get_args(ScopeKind))}, not {scope_kind!r}"
        )
    if action not in get_args(Order):
        raise InvalidRequest(f"a kill switch orders one of {', '.join(get_args(Order))}, not {action!r}")
    if (scope_kind == "all") != (scope_id == ""):
        raise InvalidRequest("say what the kill switch is on: everything needs no name, all else needs one")
    if "*" in scope_id.rstrip("*") or (scope_id.endswith("*") and scope_kind not in _WILD):
        raise InvalidRequest(
            f"{scope_id!r}: a star stands only at the end of a tool's, model's or image's name"
        )
    if scope_id.endswith("**") or len(scope_id) > 200:
        raise InvalidRequest("the name of what the kill switch is on has at most 200 characters and one star")
    check_reason(reason)


def check_reason(reason: str) -> None:
    """Whoever overrules the course of things says why."""
    if not reason.strip() or len(reason) > _MOST:
        raise InvalidRequest(f"say why, in 1 to {_MOST} characters: the reason stays on record")


def covering(switches: Sequence[Switch], subject: Subject) -> Switch | None:
    """The first switch in force that covers the job, if any."""
    return next((each for each in switches if each.covers(subject)), None)
