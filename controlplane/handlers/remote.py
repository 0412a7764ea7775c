"""Workers of other machines: who is let in, which work they are offered, and that nobody writes under another one's lease."""

from controlplane.domain.identity import EVERY_TENANT, Caller
from controlplane.domain.lease import guard
from controlplane.errors import Denied, FenceStale, NotFound
from controlplane.handlers import leases, workers
from controlplane.handlers.apply import load, spec_of
from controlplane.ports import Desk
from rlm_worker.contracts import JobSpec
from rlm_worker.contracts.base import PROTOCOL_VERSION
from rlm_worker.contracts.gateway import Claimed, ClaimRequest, NotClaimed
from rlm_worker.contracts.remote import HelloRequest

_LONGEST_NAME = 200


def bound(caller: Caller, name: str) -> str:
    """A worker's name with its credential in front, so that no other credential can speak for it."""
    mark = f"{caller.credential_id or caller.name}/"
    return name if name.startswith(mark) else f"{mark}{name}"[:_LONGEST_NAME]


def let_in(caller: Caller) -> None:
    if not caller.may_by_role("job.work"):
        raise Denied(
            f"{caller.name} may not work on jobs: it needs a key with the role worker, "
            f"and its roles are {', '.join(sorted(caller.roles)) or 'none'}"
        )


def enlist(desk: Desk, request: HelloRequest, *, caller: Caller) -> tuple[str, bool]:
    """Under which name a worker is known, and whether it is to drain."""
    worker_id = bound(caller, request.name)
    workers.register(
        desk,
        worker_id,
        host=request.host,
        # Places for which wake-ups are put on the queue: whoever asks for work has none there.
        slots=0 if request.asks else request.slots,
        image=request.image,
        facts={**request.versions, "protocol": PROTOCOL_VERSION, "slots": request.slots},
    )
    return worker_id, is_draining(desk, worker_id)


def claim(desk: Desk, request: ClaimRequest, *, caller: Caller) -> Claimed | NotClaimed:
    """Claim for a credential: what lies outside its scope is not there."""
    with desk.store.read() as tx:
        if tx.jobs.get(request.job_id, scope=caller.scope) is None:
            return NotClaimed(reason="unknown_job", detail=request.job_id)
    worker_id = bound(caller, request.worker_id)
    return leases.claim(desk, request.model_copy(update={"worker_id": worker_id}))


def holder(desk: Desk, job_id: str, fence: int) -> str:
    """Whom a lease was granted to; empty when there is no such lease."""
    with desk.store.read() as tx:
        return tx.remote.holder(job_id, fence=fence) or ""


def check_holder(caller: Caller, worker_id: str, *, job_id: str, fence: int) -> None:
    """A fence that somebody else was granted is nobody's here, as if it had never been."""
    if not worker_id or bound(caller, worker_id) != worker_id:
        raise FenceStale(f"fence {fence} of job {job_id} was not granted to this credential")


def check_lease(desk: Desk, job_id: str, *, fence: int) -> None:
    """Refuse whoever does not hold the job's lease now."""
    with desk.store.read() as tx:
        guard(tx.leases.get(job_id), fence=fence, now_ms=tx.now_ms)


def spec(desk: Desk, job_id: str) -> JobSpec:
    with desk.store.read() as tx:
        return spec_of(tx, load(tx, job_id, scope=EVERY_TENANT)[0].state.job_id)


def is_draining(desk: Desk, worker_id: str) -> bool:
    with desk.store.read() as tx:
        row = tx.workers.get(worker_id)
    return row is not None and row.is_draining


def hand_back(desk: Desk, worker_id: str, *, caller: Caller) -> int:
    """A worker of this credential goes: others go on with all that it holds."""
    if bound(caller, worker_id) != worker_id:
        raise NotFound(f"there is no worker {worker_id!r} of this credential")
    return workers.leave(desk, worker_id)
