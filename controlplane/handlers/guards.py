"""A desk whose first write checks something before and marks something after, in the same transaction as what is done there."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from controlplane.domain.commands import Order
from controlplane.domain.identity import Caller
from controlplane.errors import NotAsSeen, NotFound
from controlplane.ports import Cold, Desk, Durability, Store, Transaction, Watch
from controlplane.ports_control import SideOrder, SideOrders

Guard = Callable[[Transaction], None]


class GuardedStore:
    """A store that somebody writes to under conditions."""

    def __init__(self, store: Store, *, before: Guard | None, after: Guard | None) -> None:
        self._store = store
        self.cold: Cold = store.cold
        self._before = before
        self._after = after

    @contextmanager
    def write(self, durability: Durability = "full") -> Iterator[Transaction]:
        with self._store.write(durability) as tx:
            if self._before is not None:
                self._before(tx)
            yield tx
            if self._after is not None:
                self._after(tx)
        # Only what was committed counts: a write that is tried again is looked at again.
        self._before = self._after = None

    def read(self) -> AbstractContextManager[Transaction]:
        return self._store.read()

    def watch(self) -> AbstractContextManager[Watch]:
        return self._store.watch()

    def announce(self, job_id: str = "") -> None:
        self._store.announce(job_id)

    def close(self) -> None:
        self._store.close()


class StoreFirst:
    """Orders beside the store, for whoever has a condition: only the store can tell whether it holds, so nothing goes before it."""

    def __init__(self, side: SideOrders) -> None:
        self._side = side

    def put(
        self, *, order: Order, by: str, reason: str, jobs: Sequence[str], switch: dict[str, Any] | None = None
    ) -> SideOrder | None:
        _ = order, by, reason, jobs, switch
        return None

    def pending(self) -> list[SideOrder]:
        return self._side.pending()

    def of(self, job_id: str) -> SideOrder | None:
        return self._side.of(job_id)

    def entered(self, marks: Sequence[str]) -> None:
        self._side.entered(marks)

    def listen(self, announce: Callable[[], None]) -> None:
        self._side.listen(announce)

    def close(self) -> None:
        self._side.close()


def guarded(desk: Desk, *, before: Guard | None = None, after: Guard | None = None) -> Desk:
    if before is None and after is None:
        return desk
    store = GuardedStore(desk.store, before=before, after=after)
    return replace(desk, store=store, side=StoreFirst(desk.side))


def tag_of(tx: Transaction, job_id: str, *, caller: Caller) -> str:
    """What stands for the state of a job: it changes with every decision about it, and not while it only records."""
    row = tx.jobs.get(job_id, scope=caller.scope)
    task = None if row is None else tx.tasks.get(row.state.task_id, scope=caller.scope)
    if row is None or task is None:
        raise NotFound(f"there is no job {job_id!r}: `custody jobs` lists those that are")
    return f"{row.state.generation}-{task.version}"


def as_seen(job_id: str, tags: frozenset[str], *, caller: Caller) -> Guard:
    """Refuse when the job is not in one of the states that the caller named."""

    def check(tx: Transaction) -> None:
        now = tag_of(tx, job_id, caller=caller)
        if now not in tags:
            raise NotAsSeen(f"job {job_id} is not as it was seen: it is at {now!r} by now, look at it again")

    return check
