"""Changing the limits of a job that has not ended: by whom and why, with the tenant's hold in the same transaction."""

from collections.abc import Mapping
from dataclasses import replace

from pydantic import JsonValue, ValidationError

from controlplane.domain import budget, job
from controlplane.domain.commands import RetuneJob
from controlplane.domain.identity import Caller
from controlplane.domain.switches import check_reason
from controlplane.errors import InvalidRequest, OverBudget
from controlplane.handlers.apply import apply_job, load, spec_of, tenant_budget
from controlplane.handlers.permits import require
from controlplane.ports import Desk, JobRow, LedgerEntry, Transaction
from rlm_worker.contracts import Budget, JobSpec
from rlm_worker.contracts.gateway import Retune
from rlm_worker.contracts.job import ModelDriver


def budget_of(tx: Transaction, row: JobRow, spec: JobSpec | None = None) -> Budget:
    """The limits that a job works under now."""
    latest = tx.retunes.latest(row.state.job_id) if row.state.budget_version else None
    return latest.budget if latest is not None else (spec or spec_of(tx, row.state.job_id)).budget


def retune(desk: Desk, job_id: str, changes: Mapping[str, JsonValue], *, reason: str, caller: Caller) -> int:
    """Set the limits that `changes` names; return the version of the job's limits."""
    check_reason(reason)
    with desk.store.write() as tx:
        rows = load(tx, job_id, scope=caller.scope)
        require(tx, caller, "job.retune", tenant_id=rows[0].state.tenant_id, job_id=job_id)
        spec = spec_of(tx, job_id)
        wanted = _changed(budget_of(tx, rows[0], spec), changes)
        events = job.decide(rows[0].state, RetuneJob(budget=wanted, by=caller.name, reason=reason))
        _refuse_unpriced(desk, spec, wanted)
        row = replace(rows[0], account=replace(rows[0].account, limits=budget.limits_of(wanted)))
        _refuse_used(tx, row, wanted)
        row = _held_anew(tx, row)
        version = row.state.budget_version + 1
        tx.retunes.add(job_id, Retune(version=version, budget=wanted, by=caller.name, reason=reason))
        apply_job(tx, desk, rows=(row, rows[1]), events=events, actor=caller.name)
    desk.store.announce()
    return version


def _changed(now: Budget, changes: Mapping[str, JsonValue]) -> Budget:
    if not changes:
        raise InvalidRequest("say which limits change, for example max_subcalls=400")
    try:
        return Budget.model_validate({**now.model_dump(mode="json"), **changes})
    except ValidationError as error:
        detail = error.errors()[0]
        place = ".".join(str(part) for part in detail["loc"])
        raise InvalidRequest(f"these limits cannot be set: {place}: {detail['msg']}") from error


def _refuse_unpriced(desk: Desk, spec: JobSpec, wanted: Budget) -> None:
    if wanted.max_cost_usd is None:
        return
    root = (spec.driver.model,) if isinstance(spec.driver, ModelDriver) else ()
    for model in (*root, spec.sub_model):
        if not desk.is_priced(model):
            raise InvalidRequest(
                f"the price of model {model!r} is unknown, so a limit in money cannot be kept: limit tokens instead"
            )


def _refuse_used(tx: Transaction, row: JobRow, wanted: Budget) -> None:
    """A limit is never below what was spent and is held under it."""
    account, job_id = row.account, row.state.job_id
    lease = tx.leases.get(job_id)
    under_way_ms = 0 if lease is None else max(0, min(tx.now_ms, lease.until_ms) - lease.granted_ms)
    figures = {
        "iterations": (account.iterations, wanted.max_iterations),
        "host_calls": (account.host_calls, wanted.max_host_calls),
        "wall_time in ms": (tx.leases.spent_ms(job_id) + under_way_ms, wanted.max_wall_time_ms),
    }
    passed = account.limits.exceeded_by(account.used) or next(
        (f"{name}: {used} of {limit}" for name, (used, limit) in figures.items() if used > limit), ""
    )
    if passed:
        raise OverBudget(f"job {job_id} has used, or holds, more than that already: {passed}")


def _held_anew(tx: Transaction, row: JobRow) -> JobRow:
    """What is set aside at the tenant follows the limits; OverBudget when the tenant has not enough."""
    budget_id = tenant_budget(row.state.tenant_id)
    account = tx.budgets.get(budget_id)
    if misfit := budget.misfit(row.account.limits, above=account.limits):
        raise OverBudget(f"job {row.state.job_id} could not start with these limits: {misfit}")
    if row.tenant_hold is None:
        return row
    left = budget.left_of(row.account.limits, spent=row.tenant_settled)
    amount = budget.whole_job(left, above=account.limits)
    free = budget.settle(account, held=row.tenant_hold, spent=budget.NOTHING)
    try:
        tx.budgets.save(budget_id, budget.hold(free, amount))
    except OverBudget as error:
        raise OverBudget(f"the tenant's budget {error}") from error
    entries: list[LedgerEntry] = [
        LedgerEntry(budget_id=budget_id, job_id=row.state.job_id, kind="release", amount=row.tenant_hold),
        LedgerEntry(budget_id=budget_id, job_id=row.state.job_id, kind="hold", amount=amount),
    ]
    for entry in entries:
        tx.budgets.enter(entry)
    return replace(row, tenant_hold=amount)
