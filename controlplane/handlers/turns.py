"""Why a ready job does not start, and what limits its tenant: the same facts that the dispatcher decides by, for people."""

from functools import cached_property

from controlplane.domain.queueing import Kind, Policy, Share, hindrance
from controlplane.domain.switches import covering
from controlplane.handlers.switches import subject_of
from controlplane.ports import JobRow, Rules, Transaction


def tenant_concurrency(tx: Transaction, rules: Rules, tenant_id: str) -> int | None:
    """Jobs of a tenant at work at once: its own limit, else that of the settings; None: any number."""
    share = tx.backlog.shares((tenant_id,)).get(tenant_id)
    return rules.tenant_concurrency if share is None or share.max_jobs is None else share.max_jobs


def policy_for(tx: Transaction, rules: Rules, tenant_ids: frozenset[str]) -> Policy:
    """What choosing among jobs of these tenants depends on."""
    other = Share(max_jobs=rules.tenant_concurrency)
    shares = {
        tenant_id: share
        if share.max_jobs is not None
        else Share(weight=share.weight, max_jobs=other.max_jobs, is_suspended=share.is_suspended)
        for tenant_id, share in tx.backlog.shares(tenant_ids).items()
    }
    return Policy(
        shares=shares, other_share=other, model_limits=rules.model_limits, switches=tx.controls.in_force()
    )


class Turns:
    """What ready jobs wait for, with each fact read once for all of them."""

    def __init__(self, tx: Transaction, rules: Rules) -> None:
        self._tx = tx
        self._rules = rules

    @cached_property
    def _busy(self) -> dict[Kind, int]:
        return self._tx.backlog.busy()

    @cached_property
    def _places(self) -> tuple[int, int]:
        """Workers that are there, and the jobs that they can work on at once."""
        live = self._tx.workers.live(seen_since_ms=self._tx.now_ms - self._rules.worker_silent_ms)
        return len(live), sum(worker.slots for worker in live if not worker.is_draining)

    def waited_for(self, row: JobRow) -> str:
        state = row.state
        kind = Kind(state.tenant_id, state.model, state.sub_model)
        policy = policy_for(self._tx, self._rules, frozenset((state.tenant_id,)))
        switch = covering(policy.switches, subject_of(row))
        if switch is not None:
            return str(switch)
        return hindrance(kind, self._busy, policy) or row.refusal or self._place_words()

    def _place_words(self) -> str:
        workers, slots = self._places
        if not workers:
            return "a worker: none is running"
        at_work = sum(self._busy.values())
        return f"a free worker: all {slots} places are taken" if slots and at_work >= slots else ""
