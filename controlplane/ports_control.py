"""What control needs of the store and beside it: kill switches, findings, figures, and a place for orders that waits for nobody."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from controlplane.domain.commands import Order
from controlplane.domain.findings import Finding
from controlplane.domain.identity import Scope
from controlplane.domain.switches import Subject, Switch
from rlm_worker.contracts.gateway import Retune


@dataclass(frozen=True, kw_only=True)
class SideOrder:
    """An order beside the main store: it reaches workers while the store is locked, and is entered when that is free."""

    #: Its own name: it is entered once.
    mark: str
    order: Order
    by: str
    reason: str
    at_ms: int
    #: Jobs it is for.
    jobs: tuple[str, ...] = ()
    #: The kill switch behind it, as its fields.
    switch: dict[str, Any] | None = None


class SideOrders(Protocol):
    """A small file of orders. `put` returns None where there is no such file, because the store needs none."""

    def put(
        self, *, order: Order, by: str, reason: str, jobs: Sequence[str], switch: dict[str, Any] | None = None
    ) -> SideOrder | None: ...

    def pending(self) -> list[SideOrder]:
        """Orders that were not entered in the store yet, oldest first."""
        ...

    def of(self, job_id: str) -> SideOrder | None:
        """The strongest order for a job that was not entered yet."""
        ...

    def entered(self, marks: Sequence[str]) -> None: ...

    def listen(self, announce: Callable[[], None]) -> None:
        """Have `announce` called whenever another process writes. A second listener of the same process changes nothing."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class StuckRules:
    """How long is too long."""

    progress_ms: int = 1_800_000
    overdue_ms: int = 60_000
    answer_ms: int = 1_800_000
    person_ms: int = 7 * 86_400_000
    dispatch_ms: int = 60_000
    attempts: int = 100
    tokens_per_minute: int | None = None


@dataclass(frozen=True, kw_only=True)
class StuckRow:
    """A job that a query of a check found, with what is needed to say why."""

    job_id: str
    tenant_id: str
    since_ms: int
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AgeRow:
    """How many jobs are in a state, and the oldest of them."""

    state: str
    jobs: int
    oldest_ms: int | None


@dataclass(frozen=True, kw_only=True)
class WorkerAge:
    worker_id: str
    host: str
    slots: int
    is_draining: bool
    last_seen_ms: int
    jobs: int


class Controls(Protocol):
    """Kill switches."""

    def engage(self, switch: Switch) -> Switch:
        """Put in force, after everything that started before has committed. Returns it with its number."""
        ...

    def release(self, order_id: int, *, by: str, reason: str) -> None: ...

    def get(self, order_id: int, *, scope: Scope) -> Switch | None: ...

    def in_force(self, *, is_starting: bool = False) -> list[Switch]:
        """Whoever starts something says so: no switch is engaged between this look and its commit."""
        ...

    def page(self, *, scope: Scope, limit: int, before: int | None, only_in_force: bool) -> list[Switch]:
        """Newest first; those of everybody are seen by all."""
        ...

    def at_work(self) -> list[Subject]:
        """Jobs with a lease."""
        ...

    def held(self, *, tenant_id: str) -> list[str]:
        """Jobs that are held; with a tenant, only its own."""
        ...

    def image_of(self, worker_id: str) -> str: ...

    def take_mark(self, mark: str) -> bool:
        """Whether an order from beside the store is entered for the first time."""
        ...

    def audit(self, *, tenant_id: str, principal: str, action: str, target: str, reason: str) -> None: ...


class Retunes(Protocol):
    """Changes of limits, in their order."""

    def add(self, job_id: str, retune: Retune) -> None: ...

    def latest(self, job_id: str) -> Retune | None: ...


class Findings(Protocol):
    """What watchdogs found."""

    def add(self, finding: Finding) -> None: ...

    def open(self) -> list[Finding]: ...

    def of_job(self, job_id: str) -> list[Finding]: ...

    def page(self, *, scope: Scope, limit: int, before_ms: int | None, only_open: bool) -> list[Finding]: ...

    def no_longer_quarantined(self) -> list[str]:
        """Findings about jobs that took their workers down, and that an operator has brought back since."""
        ...

    def resolve(self, finding_ids: Sequence[str]) -> None: ...

    def no_progress(self, rules: StuckRules) -> list[StuckRow]: ...

    def wait_overdue(self, rules: StuckRules) -> list[StuckRow]: ...

    def retries_over(self, rules: StuckRules) -> list[StuckRow]: ...

    def never_answered(self, rules: StuckRules) -> list[StuckRow]: ...

    def crashed_repeatedly(self, rules: StuckRules) -> list[StuckRow]: ...

    def state_disagrees(self, rules: StuckRules) -> list[StuckRow]: ...

    def never_dispatched(self, rules: StuckRules) -> list[StuckRow]: ...

    def at_work(self) -> list[StuckRow]:
        """Jobs with a lease, with what they have spent and the length of their trace."""
        ...


class Figures(Protocol):
    """What monitors show."""

    def ages(self, *, scope: Scope) -> list[AgeRow]:
        """Jobs that have not ended, by state."""
        ...

    def ended(self, *, scope: Scope, since_ms: int) -> dict[str, int]:
        """Jobs that ended since then, by how."""
        ...

    def retries(self, *, scope: Scope) -> tuple[int, int]:
        """Jobs under way that lost a worker, and how often at most."""
        ...

    def queue_depth(self) -> int:
        """Wake-ups that nobody has taken up."""
        ...

    def workers(self, *, limit: int) -> list[WorkerAge]: ...


class ControlRows(Protocol):
    """What a transaction holds for control."""

    controls: Controls
    retunes: Retunes
    findings: Findings
    figures: Figures
