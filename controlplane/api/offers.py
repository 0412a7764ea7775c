"""Which ready jobs a worker that asks is told of: chosen as the dispatcher chooses, and given to nobody else for a moment."""

from collections import Counter
from collections.abc import Sequence

from controlplane.domain.identity import EVERY_TENANT, Scope
from controlplane.domain.queueing import Kind
from controlplane.handlers.turns import policy_for
from controlplane.ports import Desk, Transaction
from controlplane.ports_queue import Wake
from controlplane.watchdogs.dispatcher import fill

#: Lanes that are looked at; those of one priority, model and tenant are one.
_LANES = 2_000


def offers(desk: Desk, scope: Scope, limit: int, offered: Sequence[tuple[str, int]]) -> list[Wake]:
    """Jobs of a scope to be worked on now, in order. What was offered a moment ago counts as at work."""
    room, left_out = limit + len(offered), set(offered)
    with desk.store.read() as tx:
        lanes = {
            lane: count
            for lane, count in tx.backlog.lanes(after="", most=_LANES, count_to=room)
            if scope.covers(lane.kind.tenant_id)
        }
        if not lanes:
            return []
        policy = policy_for(tx, desk.rules, frozenset(lane.kind.tenant_id for lane in lanes))
        busy = tx.backlog.busy() + tx.backlog.sent() + _kinds(tx, offered)
        found = fill(tx, lanes, busy, policy, room=room)
    return [wake for wake in found if (wake.job_id, wake.generation) not in left_out][:limit]


def _kinds(tx: Transaction, offered: Sequence[tuple[str, int]]) -> Counter[Kind]:
    """Of those that were offered and are not at work yet."""
    rows = (tx.jobs.get(job_id, scope=EVERY_TENANT) for job_id, _ in offered)
    states = [row.state for row in rows if row is not None and row.state.is_ready]
    return Counter(Kind(state.tenant_id, state.model, state.sub_model) for state in states)
