"""What a job is, as values: its state, how far a stop has come, what it is parked for. Folded by job.evolve alone."""

from dataclasses import dataclass

from controlplane.domain.commands import Order
from controlplane.views import TERMINAL, JobStateName, WaitReason
from rlm_worker.contracts.gateway import Desired


@dataclass(frozen=True, kw_only=True)
class Stop:
    """How far a stop has come. Each time is set once."""

    order: Order
    requested_ms: int
    #: Who ordered it; `switch:N` for a kill switch.
    by: str = ""
    delivered_ms: int | None = None
    observed_ms: int | None = None
    verified_ms: int | None = None
    survivors: tuple[int, ...] = ()
    #: A pause that was called off on its way: the job goes on as soon as it is held.
    lifted_by: str = ""


@dataclass(frozen=True, kw_only=True)
class Parked:
    """What a parked job waits for."""

    reason: WaitReason
    detail: str = ""
    #: When it becomes ready by itself; None means: only when somebody says so.
    not_before_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class JobState:
    job_id: str = ""
    task_id: str = ""
    step_id: str = ""
    tenant_id: str = ""
    max_attempts: int = 3
    state: JobStateName = "queued"
    desired: Desired = "run"
    #: Why it is desired or, at the end, why it ended.
    reason: str = ""
    #: Grows each time the job becomes ready again; a wake-up of an older one is stale.
    generation: int = 0
    #: Leases granted.
    attempts: int = 0
    #: Leases that ended with their worker.
    losses: int = 0
    fence: int = 0
    is_leased: bool = False
    stop: Stop | None = None
    #: Set while it is parked.
    parked: Parked | None = None
    #: Grows with each change of the limits; 0: they are those of the spec.
    budget_version: int = 0
    settled_fence: int = 0
    result_digest: str = ""
    #: Higher goes first.
    priority: int = 0
    #: When it must have ended.
    deadline_ms: int | None = None
    #: Who writes the cells (empty: a playbook) and who answers predict().
    model: str = ""
    sub_model: str = ""
    #: W3C trace context of whoever submitted it.
    traceparent: str = ""

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def is_ready(self) -> bool:
        return self.state == "queued" and self.desired == "run"
