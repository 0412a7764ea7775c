"""Whether a caller may do something to what belongs to a tenant, decided in the transaction that does it."""

from controlplane.domain.identity import Caller, Capability
from controlplane.domain.permissions import UNKNOWN, About, Decision, decide, subjects_of
from controlplane.errors import Denied
from controlplane.ports import Transaction
from rlm_worker.contracts import JobSpec
from rlm_worker.contracts.job import ModelDriver

#: What those of a suspended tenant may still do: look, and stop what runs.
_WHILE_SUSPENDED: frozenset[Capability] = frozenset(
    {
        "job.read",
        "job.stop",
        "trace.read",
        "content.read",
        "evidence.read",
        "switch.read",
        "switch.engage",
        "worker.read",
        "budget.read",
        "audit.read",
    }
)


def require(
    tx: Transaction,
    caller: Caller,
    capability: Capability,
    *,
    tenant_id: str,
    job_id: str = "",
    spec: JobSpec | None = None,
) -> None:
    """Let pass what roles and permissions allow within the caller's own scope; Denied otherwise.

    Constraints look at the job: its spec is read when there are any.
    """
    if not caller.scope.covers(tenant_id):
        raise _denied(caller, capability, tenant_id, "it belongs to another tenant")
    if caller.is_owner:
        if caller.may_by_role(capability):
            return
        raise _denied(caller, capability, tenant_id, _lacking(caller))
    tenant = tx.tenants.get(tenant_id) if tenant_id else None
    if tenant is not None and tenant.is_suspended and capability not in _WHILE_SUSPENDED:
        raise _denied(caller, capability, tenant_id, f"the tenant {tenant_id} is suspended")
    decision = _decide(tx, caller, capability, tenant_id=tenant_id, job_id=job_id, spec=spec)
    if not decision.is_allowed:
        why = f"permission {decision.permission_id} denies it" if decision.permission_id else _lacking(caller)
        raise _denied(caller, capability, tenant_id, why)


def _decide(
    tx: Transaction,
    caller: Caller,
    capability: Capability,
    *,
    tenant_id: str,
    job_id: str,
    spec: JobSpec | None,
) -> Decision:
    found = tx.permissions.of(tenant_id=tenant_id, subjects=subjects_of(caller), capability=capability)
    about = UNKNOWN
    if any(each.constraints.are_any for each in found):
        if spec is None and job_id:
            spec = JobSpec.model_validate_json(tx.jobs.spec(job_id))
        about = UNKNOWN if spec is None else about_job(spec)
    return decide(caller, capability, found, about=about, now_ms=tx.now_ms)


def about_job(spec: JobSpec) -> About:
    root = {spec.driver.model} if isinstance(spec.driver, ModelDriver) else set[str]()
    return About(
        labels=frozenset(spec.labels.items()),
        models=frozenset({*root, spec.sub_model}),
        task_id=spec.task_id,
        is_priced=True,
        max_usd=spec.budget.max_cost_usd,
    )


def _lacking(caller: Caller) -> str:
    return f"none of its roles gives it ({', '.join(sorted(caller.roles)) or 'it has none'})"


def _denied(caller: Caller, capability: Capability, tenant_id: str, why: str) -> Denied:
    return Denied(
        f"{caller.name} may not do this: it needs {capability!r}, and {why}",
        capability=capability,
        tenant_id=tenant_id,
    )
