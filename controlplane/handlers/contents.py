"""Whether a caller may see texts of models and of evidence."""

from controlplane.domain.identity import Caller
from controlplane.handlers.permits import require
from controlplane.ports import Desk


def allow(desk: Desk, *, caller: Caller, tenant_id: str | None = None, job_id: str = "") -> None:
    """Pass, or Denied. Without a job: of everything that a list may show."""
    with desk.store.read() as tx:
        owner = caller.scope.tenant_id or "" if tenant_id is None else tenant_id
        require(tx, caller, "content.read", tenant_id=owner, job_id=job_id)
