"""Workers: who works, on how much at once, and who shall take nothing new."""

from datetime import timedelta

from controlplane.domain.identity import Caller
from controlplane.errors import InvalidRequest, NotFound
from controlplane.handlers import leases
from controlplane.handlers.audits import enter
from controlplane.handlers.permits import require
from controlplane.handlers.times import at_ms
from controlplane.ports import Desk
from controlplane.ports_queue import WorkerRow
from controlplane.views import WorkerView
from rlm_worker.contracts.base import JsonObject

_MOST_SLOTS = 10_000
_MOST_FACTS = 100
#: How long a worker that is gone is still shown.
_REMEMBERED = timedelta(days=7)


def register(
    desk: Desk, worker_id: str, *, host: str, slots: int, image: str = "", facts: JsonObject | None = None
) -> None:
    """Enter a worker that is ready to work, with what it says about itself."""
    if not worker_id or not 0 <= slots <= _MOST_SLOTS or len(facts or {}) > _MOST_FACTS:
        raise InvalidRequest(
            f"a worker has a name, 0 to {_MOST_SLOTS} slots and at most {_MOST_FACTS} facts: worker {worker_id!r} was not entered"
        )
    row = WorkerRow(worker_id=worker_id, host=host, slots=slots, image=image, facts=facts or {})
    with desk.store.write("normal") as tx:
        tx.workers.put(row)
    # Ready jobs may have waited for somebody to come.
    desk.store.announce()


def beat(desk: Desk, worker_id: str) -> bool:
    """A worker is still there; True: it shall take nothing new. NotFound: it was forgotten, it must register again."""
    with desk.store.write("normal") as tx:
        row = tx.workers.get(worker_id)
        if row is None or row.gone_ms is not None:
            raise NotFound(f"worker {worker_id!r} is not known here: it must register again")
        tx.workers.seen(worker_id)
    return row.is_draining


def leave(desk: Desk, worker_id: str) -> int:
    """A worker goes: what it holds is handed back; return how many jobs."""
    with desk.store.write("normal") as tx:
        tx.workers.mark_gone(worker_id)
    return leases.hand_back(desk, worker_id=worker_id)


def drain(desk: Desk, worker_id: str, *, caller: Caller, undo: bool = False) -> None:
    """Have a worker take nothing new; what it works on goes on."""
    with desk.store.write() as tx:
        # Workers are everybody's: whoever looks after one tenant alone may not take them from the others.
        require(tx, caller, "worker.drain", tenant_id="")
        if tx.workers.get(worker_id) is None:
            raise NotFound(f"there is no worker {worker_id!r}: the list of workers names those that are")
        tx.workers.set_draining(worker_id, is_draining=not undo)
        said = "worker.resume" if undo else "worker.drain"
        enter(tx, caller, said, target=worker_id, tenant_id="")
    desk.store.announce()


def workers(desk: Desk, *, caller: Caller, limit: int = 200) -> list[WorkerView]:
    """Those that are there first, then those seen last."""
    with desk.store.read() as tx:
        require(tx, caller, "worker.read", tenant_id=caller.scope.tenant_id or "")
        silent_ms = tx.now_ms - desk.rules.worker_silent_ms
        return [_view(row, is_silent=row.last_seen_ms < silent_ms) for row in tx.workers.all(limit=limit)]


def _view(row: WorkerRow, *, is_silent: bool) -> WorkerView:
    gone = row.gone_ms is not None
    return WorkerView(
        worker_id=row.worker_id,
        host=row.host,
        slots=row.slots,
        image=row.image,
        facts=row.facts,
        state="gone" if gone else "silent" if is_silent else "draining" if row.is_draining else "working",
        is_draining=row.is_draining,
        first_seen_at=at_ms(row.first_seen_ms),
        last_seen_at=at_ms(row.last_seen_ms),
    )


def mark_gone(desk: Desk) -> int:
    """Mark workers whose process has ended, or that were not seen for long; forget those gone long ago."""
    with desk.store.read() as tx:
        silent_ms = tx.now_ms - desk.rules.worker_silent_ms
        found = [row for row in tx.workers.all(limit=1_000) if row.gone_ms is None]
        now_ms = tx.now_ms
    gone = [row.worker_id for row in found if row.last_seen_ms < silent_ms or desk.is_gone(row.worker_id)]
    if not gone:
        return 0
    with desk.store.write("normal") as tx:
        for worker_id in gone:
            tx.workers.mark_gone(worker_id)
        tx.workers.forget(gone_before_ms=now_ms - int(_REMEMBERED.total_seconds() * 1000))
    return len(gone)
