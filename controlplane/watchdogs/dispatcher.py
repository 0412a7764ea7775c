"""Dispatcher: decides from the database what is ready now, and sends a wake-up for it; never more than twice what the workers hold."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from controlplane.crashpoints import crash_here
from controlplane.domain.identity import EVERY_TENANT
from controlplane.domain.queueing import Kind, Lane, Policy, choose, hindrance, subject
from controlplane.errors import Stale, Unavailable
from controlplane.handlers import parking
from controlplane.handlers.turns import policy_for
from controlplane.ports import Desk, Transaction
from controlplane.ports_queue import Signs, Wake

log = logging.getLogger(__name__)

INTERVAL = 0.1
DUTY = "dispatcher"
#: Who has the duty and is silent this long has lost it.
DUTY_MS = 5_000
#: Messages in the queue for each place of a worker: enough that none waits for the dispatcher, few enough that an order acts at once.
AHEAD = 2
#: How often whoever does not have the duty asks for it.
_ASK_SECONDS = 0.5
_BATCH = 100
#: Lanes that one look goes through; the next look goes on behind them.
_LANES = 2_000
#: Looks at lanes whose first jobs turn out to be switched off, before the next round has to go on.
_LOOKS = 3
#: Seconds for which a queue that did not answer is left alone.
_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Queue:
    """Where wake-ups go. Both raise Unavailable, and soon, when it does not answer."""

    send: Callable[[Wake], None]
    #: Messages in it that no worker has taken.
    depth: Callable[[], int] = lambda: 0


@dataclass
class Dispatcher:
    """One of the processes that may have the duty; `run_once` does nothing while another one has it."""

    desk: Desk
    queue: Queue
    #: Name of this dispatcher: NAME@WORKER, so that it can be told when its process is gone.
    holder: str
    _duty_until: float = 0.0
    _ask_again: float = 0.0
    _paused_until: float = 0.0
    #: Why nothing can be sent; empty: it can.
    problem: str = ""
    _after: str = field(default="", repr=False)

    def run_once(self) -> int:
        """Decide once; return how many wake-ups were sent. A crash in between sends some twice, which is harmless."""
        if not self._has_duty():
            return 0
        with self.desk.store.read() as tx:
            signs, now_ms = tx.backlog.signs(), tx.now_ms
            before_ms = now_ms - self.desk.rules.resend_after_ms
            is_due = signs.has_waited or signs.is_stale(before_ms)
            wakes = [] if is_due else self._next(tx, signs)
        if is_due:
            if signs.has_waited:
                _wake_parked(self.desk)
            self._put_back(signs, before_ms=before_ms)
            with self.desk.store.read() as tx:
                wakes = self._next(tx, tx.backlog.signs())
        sent = self._send(wakes)
        if sent:
            with self.desk.store.write("normal") as tx:
                tx.backlog.mark_sent(sent)
        return len(sent)

    def stop(self) -> None:
        """Leave the duty to the next one at once."""
        if not self._duty_until:
            return
        self._duty_until = self._ask_again = 0.0
        with self.desk.store.write("normal") as tx:
            tx.duties.leave(DUTY, holder=self.holder)

    def _has_duty(self) -> bool:
        """Counted from before the database was asked, so that it is never longer than the database thinks."""
        asked = time.monotonic()
        if asked < self._ask_again:
            return asked < self._duty_until
        try:
            with self.desk.store.write("normal") as tx:
                holder = tx.duties.holder(DUTY)
                gone = holder if self.desk.is_gone(holder.rpartition("@")[2]) else ""
                has = tx.duties.take(DUTY, holder=self.holder, ttl_ms=DUTY_MS, instead_of=gone)
        except Stale:
            has = False
        self._ask_again = asked + (DUTY_MS / 2_000 if has else _ASK_SECONDS)
        self._duty_until = asked + DUTY_MS / 1000 if has else 0.0
        return has

    def _put_back(self, signs: Signs, *, before_ms: int) -> None:
        """Have sent again what nobody took up although the queue holds no message for it, and what was refused a while ago."""
        is_lost = signs.oldest_sent_ms is not None and signs.oldest_sent_ms <= before_ms
        in_queue = self._depth() if is_lost else None
        with self.desk.store.write("normal") as tx:
            tx.backlog.put_back_refused(refused_before_ms=before_ms, limit=_BATCH)
            missing = 0 if in_queue is None else tx.backlog.sent().total() - in_queue
            if missing > 0:
                lost = tx.backlog.put_back_lost(sent_before_ms=before_ms, limit=min(missing, _BATCH))
                log.info("wake_ups_sent_again", extra={"jobs": lost})

    def _next(self, tx: Transaction, signs: Signs) -> list[Wake]:
        if not signs.has_ready or time.monotonic() < self._paused_until:
            return []
        live = tx.workers.live(seen_since_ms=tx.now_ms - self.desk.rules.worker_silent_ms)
        on_the_way = tx.backlog.sent()
        slots = sum(
            each.slots for each in live if not each.is_draining and not self.desk.is_gone(each.worker_id)
        )
        room = AHEAD * slots - on_the_way.total()
        if room <= 0:
            return []
        lanes = dict(tx.backlog.lanes(after=self._after, most=_LANES, count_to=room))
        self._after = max((lane.text for lane in lanes), default="") if len(lanes) == _LANES else ""
        policy = policy_for(tx, self.desk.rules, frozenset(lane.kind.tenant_id for lane in lanes))
        return fill(tx, lanes, tx.backlog.busy() + on_the_way, policy, room=room)

    def _send(self, wakes: list[Wake]) -> list[Wake]:
        """Send in order; return what was sent. A queue that fails is left alone for a moment: its jobs stay ready."""
        if wakes:
            crash_here("dispatch.before_enqueue")
        sent = []
        try:
            for wake in wakes:
                self.queue.send(wake)
                sent.append(wake)
        except Unavailable as error:
            self._fail(error)
        if sent:
            crash_here("dispatch.after_enqueue")
            self._recover()
        return sent

    def _depth(self) -> int | None:
        """Messages in the queue; None: it does not say."""
        if time.monotonic() < self._paused_until:
            return None
        try:
            depth = self.queue.depth()
        except Unavailable as error:
            self._fail(error)
            return None
        self._recover()
        return depth

    def _fail(self, error: Unavailable) -> None:
        self._paused_until = time.monotonic() + _PAUSE_SECONDS
        if not self.problem:
            log.error("queue_unreachable", extra={"reason": str(error)})
        self.problem = str(error)

    def _recover(self) -> None:
        if self.problem:
            self.problem = ""
            log.warning("queue_reachable_again")


def fill(
    tx: Transaction, lanes: dict[Lane, int], busy: Counter[Kind], policy: Policy, *, room: int
) -> list[Wake]:
    """The jobs to be sent, in order. A lane that has fewer than it seemed gives its places to the others."""
    spares = any(switch.scope_kind in ("task", "job") for switch in policy.switches)
    found: dict[Lane, list[Wake]] = {}
    order: list[Lane] = []
    for _ in range(_LOOKS):
        order = choose(lanes, busy, policy, room=room)
        wanted = Counter(order)
        for lane, count in wanted.items():
            if len(found.get(lane, ())) < count:
                found[lane] = tx.backlog.first_of(lane, limit=count, spares_switched=spares)
        short = {lane: len(found[lane]) for lane, count in wanted.items() if len(found[lane]) < count}
        if not short:
            break
        lanes = {**lanes, **short}
    left = {lane: iter(wakes) for lane, wakes in found.items()}
    wakes = (next(left[lane], None) for lane in order)
    return [wake for wake in wakes if wake is not None]


def _wake_parked(desk: Desk, only_jobs: frozenset[str] | None = None) -> None:
    with desk.store.read() as tx:
        waited = tx.jobs.waited_enough(jobs=only_jobs, limit=_BATCH)
    for job_id in waited:
        parking.wake(desk, job_id, by="dispatcher")


@dataclass
class Errand:
    """A dispatcher for some jobs and no others, in the process that works on them: nobody else needs to know."""

    desk: Desk
    queue: Queue
    jobs: frozenset[str]
    #: When a wake-up was sent, by job and generation.
    _sent: dict[tuple[str, int], float] = field(default_factory=dict)

    def run_once(self) -> int:
        _wake_parked(self.desk, self.jobs)
        with self.desk.store.read() as tx:
            wakes = self._next(tx)
        for wake in wakes:
            self.queue.send(wake)
            self._sent[wake.job_id, wake.generation] = time.monotonic()
        return len(wakes)

    def stop(self) -> None:
        """Nothing is kept."""

    def _next(self, tx: Transaction) -> list[Wake]:
        found = []
        patience = self.desk.rules.resend_after_ms / 1000
        busy: Counter[Kind] | None = None
        for job_id in sorted(self.jobs):
            row = tx.jobs.get(job_id, scope=EVERY_TENANT)
            if row is None or not row.state.is_ready:
                continue
            state = row.state
            sent = self._sent.get((job_id, state.generation))
            if sent is not None and time.monotonic() - sent < patience:
                continue
            kind = Kind(state.tenant_id, state.model, state.sub_model)
            policy = policy_for(tx, self.desk.rules, frozenset((state.tenant_id,)))
            busy = tx.backlog.busy() if busy is None else busy
            is_switched = any(
                each.covers(subject(kind, task_id=state.task_id, job_id=job_id)) for each in policy.switches
            )
            if not is_switched and not hindrance(kind, busy, policy):
                found.append(Wake(job_id=job_id, generation=state.generation, traceparent=state.traceparent))
        return found
