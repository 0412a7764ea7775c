"""Following a job: how far it is, in one small look."""

from dataclasses import dataclass

from controlplane.domain.identity import Caller
from controlplane.handlers.apply import load
from controlplane.handlers.permits import require
from controlplane.ports import Desk


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What changes when there is something to tell."""

    tenant_id: str
    trace_events: int
    #: Grows with every decision about the job.
    version: int
    is_terminal: bool


def look(desk: Desk, job_id: str, *, caller: Caller) -> Standing:
    with desk.store.read() as tx:
        row, task = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "trace.read", tenant_id=row.state.tenant_id, job_id=job_id)
        return Standing(
            tenant_id=row.state.tenant_id,
            trace_events=row.trace_events,
            version=task.version,
            is_terminal=row.state.is_terminal,
        )
