"""One thread that looks at the store for everyone who waits: a thousand long polls hold a thousand futures and no thread.

Whoever waits for orders is told only that something about its job changed, and asks the handler then: what is wanted is decided
there and nowhere else. Whoever waits for work is given jobs to claim; a claim is the truth, so offering one twice does no harm.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from controlplane.domain.identity import Scope
from controlplane.errors import ControlPlaneError
from controlplane.ports import Store, Watch
from controlplane.ports_queue import Wake
from controlplane.ports_remote import Mark

log = logging.getLogger(__name__)

#: How long an arrival may be unseen, and how long nothing is looked at though nothing was announced: leases end by the clock.
_ARRIVAL_SECONDS = 0.02
_CLOCK_SECONDS = 1.0
#: Least time between two looks, and the share of its time that the thread spends looking.
_PACE_SECONDS = 0.005
_SHARE = 0.25
#: A job that was offered is offered to somebody else when it was not claimed for so long.
_OFFER_SECONDS = 2.0
_AGAIN_SECONDS = 0.5

#: Jobs of a scope that are ready, at most so many, without those that are named.
Choose = Callable[[Scope, int, Sequence[tuple[str, int]]], list[Wake]]


@dataclass(eq=False)
class Waiter:
    """Somebody who waits: for a change of a job, or for work."""

    loop: asyncio.AbstractEventLoop
    #: Done when its job was looked at for the first time.
    seen: "asyncio.Future[None]"
    #: Done when something was different later, or when there is work.
    stirred: "asyncio.Future[list[Wake]]"
    job_id: str = ""
    scope: Scope | None = None
    free: int = 0
    mark: Mark | None = None
    is_seen: bool = False
    is_told: bool = False

    def look(self, mark: Mark | None) -> None:
        if not self.is_seen:
            self.is_seen, self.mark = True, mark
            self._settle(self.seen, None)
        elif mark != self.mark:
            self.tell([])

    def tell(self, jobs: list[Wake]) -> None:
        if not self.is_told:
            self.is_told = True
            self._settle(self.stirred, jobs)

    def _settle(self, future: "asyncio.Future[Any]", value: object) -> None:
        def settle() -> None:
            if not future.done():
                future.set_result(value)

        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(settle)


class Lookout:
    """Looks for all that wait on one process."""

    def __init__(
        self, store: Store, choose: Choose, *, beside: Callable[[str], object] = lambda _job_id: None
    ) -> None:
        """`beside`: what is wanted of a job and does not stand in the store."""
        self._store = store
        self._choose = choose
        self._beside = beside
        self._waiters: set[Waiter] = set()
        self._lock = threading.Lock()
        self._arrived = threading.Event()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._offered: dict[tuple[str, int], float] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiters)

    def close(self) -> None:
        """Answer all that wait with nothing, and those that come later at once."""
        with self._lock:
            self._is_closed = True
            waiters = list(self._waiters)
        for waiter in waiters:
            waiter.look(waiter.mark)
            waiter.tell([])
        self._arrived.set()

    @contextmanager
    def for_job(self, job_id: str) -> Iterator[Waiter]:
        with self._waiting(Waiter(*_futures(), job_id=job_id)) as waiter:
            yield waiter

    @contextmanager
    def for_work(self, scope: Scope, *, free: int) -> Iterator[Waiter]:
        with self._waiting(Waiter(*_futures(), scope=scope, free=free)) as waiter:
            yield waiter

    @contextmanager
    def _waiting(self, waiter: Waiter) -> Iterator[Waiter]:
        with self._lock:
            self._waiters.add(waiter)
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._turn, name="custody-lookout", daemon=True)
                self._thread.start()
            is_closed = self._is_closed
        if is_closed:
            waiter.look(None)
            waiter.tell([])
        self._arrived.set()
        try:
            yield waiter
        finally:
            with self._lock:
                self._waiters.discard(waiter)

    def _turn(self) -> None:
        while not self._is_closed:
            self._arrived.wait()
            try:
                with self._store.watch() as watch:
                    while self._waiters and not self._is_closed:
                        self._look(watch)
            except ControlPlaneError as error:
                # Whoever waits is told by its own request that the store does not answer.
                log.warning("lookout_blind", extra={"reason": str(error)})
                time.sleep(_AGAIN_SECONDS)
            except Exception:
                # The next order must still be heard, whatever it was.
                log.exception("lookout_failed")
                time.sleep(_AGAIN_SECONDS)
            with self._lock:
                if not self._waiters and not self._is_closed:
                    self._arrived.clear()

    def _look(self, watch: Watch) -> None:
        """Look once for everybody, then wait until there is a reason to look again."""
        began = time.monotonic()
        self._arrived.clear()
        # Says what counts as seen; a change from here on ends the wait below.
        watch.read("", steer_seen=0)
        with self._lock:
            waiters = [waiter for waiter in self._waiters if not waiter.is_told]
        self._look_at_jobs([waiter for waiter in waiters if waiter.scope is None])
        self._offer([waiter for waiter in waiters if waiter.scope is not None])
        took = time.monotonic() - began
        time.sleep(max(_PACE_SECONDS, took / _SHARE - took))
        while not self._is_closed and time.monotonic() < began + _CLOCK_SECONDS:
            if watch.wait(timeout=_ARRIVAL_SECONDS) or self._arrived.is_set():
                return

    def _look_at_jobs(self, waiters: list[Waiter]) -> None:
        if not waiters:
            return
        with self._store.read() as tx:
            marks = tx.remote.marks({waiter.job_id for waiter in waiters})
        for waiter in waiters:
            waiter.look((*marks.get(waiter.job_id, ()), self._beside(waiter.job_id)))

    def _offer(self, waiters: list[Waiter]) -> None:
        now = time.monotonic()
        self._offered = {job: at for job, at in self._offered.items() if now - at < _OFFER_SECONDS}
        for scope in {waiter.scope for waiter in waiters}:
            same = [waiter for waiter in waiters if waiter.scope == scope]
            assert scope is not None
            found = self._choose(scope, sum(waiter.free for waiter in same), tuple(self._offered))
            self._share_out(found, same, now=now)

    def _share_out(self, found: list[Wake], waiters: list[Waiter], *, now: float) -> None:
        """One at a time and in turn: what one worker could take whole may keep all of them busy."""
        given: dict[Waiter, list[Wake]] = {waiter: [] for waiter in waiters}
        while found:
            takers = [waiter for waiter in waiters if len(given[waiter]) < waiter.free]
            if not takers:
                break
            for waiter in takers[: len(found)]:
                given[waiter].append(found.pop(0))
        for waiter, jobs in given.items():
            if jobs:
                self._offered |= {(job.job_id, job.generation): now for job in jobs}
                waiter.tell(jobs)


def _futures() -> "tuple[asyncio.AbstractEventLoop, asyncio.Future[None], asyncio.Future[list[Wake]]]":
    loop = asyncio.get_running_loop()
    return loop, loop.create_future(), loop.create_future()
