"""The leases that a job had, one row for each."""

from controlplane.domain.identity import Caller
from controlplane.handlers.apply import load
from controlplane.handlers.permits import require
from controlplane.ports import Desk
from controlplane.ports_access import AttemptRow


def of(desk: Desk, job_id: str, *, caller: Caller) -> list[AttemptRow]:
    """The first one first."""
    with desk.store.read() as tx:
        row, _ = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "job.read", tenant_id=row.state.tenant_id, job_id=job_id)
        return tx.attempts.of(job_id)
