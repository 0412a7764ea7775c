"""Monitors: figures about jobs and workers as they stand now, for people and for alarms."""

from controlplane.domain.identity import Caller
from controlplane.handlers.permits import require
from controlplane.ports import Desk, Transaction
from controlplane.views import Monitors, StateFigures, WorkerFigures, at

_HOUR_MS = 3_600_000
_WORKERS = 1_000
_WAITING = ("queued", "held", "parked")
_AT_WORK = ("leased", "running", "stopping")


def monitors(desk: Desk, *, caller: Caller) -> Monitors:
    """Jobs by state with their ages, retries and failures within the caller's tenant; queue and workers for who sees all."""
    with desk.store.read() as tx:
        require(tx, caller, "job.read", tenant_id=caller.scope.tenant_id or "")
        ages = tx.figures.ages(scope=caller.scope)
        ended = tx.figures.ended(scope=caller.scope, since_ms=tx.now_ms - _HOUR_MS)
        retried, most = tx.figures.retries(scope=caller.scope)
        sees_all = caller.scope.tenant_id is None
        by_state = {
            row.state: StateFigures(
                jobs=row.jobs,
                oldest_seconds=0.0 if row.oldest_ms is None else (tx.now_ms - row.oldest_ms) / 1000,
            )
            for row in ages
        }
        failed = ended.get("failed", 0) + ended.get("quarantined", 0)
        return Monitors(
            at=at(tx.now_ms),
            jobs=by_state,
            ended_last_hour=ended,
            failure_rate=failed / total if (total := sum(ended.values())) else 0.0,
            oldest_running_seconds=_oldest(by_state, _AT_WORK),
            oldest_waiting_seconds=_oldest(by_state, _WAITING),
            jobs_retried=retried,
            most_retries=most,
            queue_depth=tx.figures.queue_depth() if sees_all else by_state.get("queued", _NONE).jobs,
            workers=_workers(tx) if sees_all else (),
        )


_NONE = StateFigures(jobs=0, oldest_seconds=0.0)


def _oldest(by_state: dict[str, StateFigures], states: tuple[str, ...]) -> float:
    return max((by_state[state].oldest_seconds for state in states if state in by_state), default=0.0)


def _workers(tx: Transaction) -> tuple[WorkerFigures, ...]:
    return tuple(
        WorkerFigures(
            worker_id=row.worker_id,
            host=row.host,
            slots=row.slots,
            is_draining=row.is_draining,
            silent_seconds=max(0, tx.now_ms - row.last_seen_ms) / 1000,
            jobs=row.jobs,
        )
        for row in tx.figures.workers(limit=_WORKERS)
    )
