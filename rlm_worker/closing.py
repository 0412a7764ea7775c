"""How a REPL is brought to its closing turn: by a limit, by time, or by an order that cuts short what it is doing."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import sandbox
from rlm_worker.contracts import JsonObject
from rlm_worker.contracts.trace import BudgetExhausted
from rlm_worker.endings import Ending, Exhausted, Stopped, Submitted
from rlm_worker.errors import BudgetExceeded, MustPark
from rlm_worker.journal import NodeJournal
from rlm_worker.meter import Meter
from rlm_worker.trace import TraceWriter

T = TypeVar("T")
#: Time that an interrupted cell has to let go before its sandbox is killed.
_INTERRUPT_SECONDS = 1.0

Why = Exhausted | Stopped


class CutShort(Exception):
    """What the REPL was doing was cut short, so that its closing turn can begin."""


class Closing:
    """The end of one REPL: what brings it, and whether the turn that is left was taken."""

    def __init__(
        self,
        writer: TraceWriter,
        journal: NodeJournal,
        *,
        node: str,
        meter: Meter,
        has_turn: bool,
        asks: bool = False,
    ) -> None:
        self._writer = writer
        self._journal = journal
        self._node = node
        self._meter = meter
        self.has_turn = has_turn
        #: Whether the job waits at a limit of its own until that is raised.
        self._asks = asks
        self._timer: asyncio.TimerHandle | None = None
        #: Set as soon as the closing turn has begun.
        self.why: Why | None = self._recall()
        self._asked: Why | None = None
        self._cut: Callable[[], object] | None = None

    def _recall(self) -> Exhausted | None:
        met = self._journal.exhausted
        if met is None:
            return None
        self._meter.open_reserve()
        return Exhausted(met.dimension, met.limit, met.spent, met.detail)

    @property
    def is_over(self) -> bool:
        """Whether the closing turn was taken in an earlier attempt, or there is none: only a model gets one."""
        if self.why is None:
            return False
        closed = self._journal.iterations.get(self._journal.exhausted_after + 1)
        return not self.has_turn or (closed is not None and closed.finished is not None)

    def ask(self, why: Why) -> None:
        """Bring the closing turn about, whatever is going on. The first reason stands."""
        if self.why is None and self._asked is None:
            self._asked = why
            if self._cut is not None:
                self._cut()

    async def begin_if_asked(self) -> None:
        """Begin the closing turn when somebody asked for it or the time to work is over."""
        if self.why is None and self.has_turn:
            try:
                self._meter.check_time()
            except BudgetExceeded as refusal:
                self.ask_for_more(refusal)
                self._asked = self._asked or exhausted_by(refusal)
            if self._asked is not None:
                await self.begin(self._asked)

    def ask_for_more(self, refusal: BudgetExceeded) -> None:
        """Raise MustPark where a limit of the job is waited at."""
        if self._asks and refusal.of_job and self.why is None:
            raise MustPark("budget", str(refusal)) from refusal

    def retuned(self) -> None:
        """The time to work is another one."""
        if self._timer is not None:
            self._timer.cancel()
            self._arm()

    def _arm(self) -> None:
        seconds = max(0.0, self._meter.seconds_left())
        self._timer = asyncio.get_running_loop().call_later(seconds, self._time_over)

    def _time_over(self) -> None:
        limit = f"{self._meter.budget.max_wall_time_ms / 1000:g} s"
        self.ask(Exhausted("wall_time", limit, limit))

    async def begin(self, why: Why) -> None:
        """One more turn, to SUBMIT. A limit is recorded at once, so that a crash does not give another turn."""
        if isinstance(why, Exhausted):
            await self.record(why)
        self.why = why
        self._meter.open_reserve()

    async def record(self, ending: Exhausted) -> None:
        await self._writer.write(
            BudgetExhausted(
                node=self._node,
                dimension=ending.dimension,
                limit=ending.limit,
                spent=ending.spent,
                detail=ending.detail,
            )
        )

    def accepted(self, fields: JsonObject) -> Ending:
        """A valid SUBMIT wins over every limit; in the closing turn it is the partial answer."""
        match self.why:
            case Exhausted(dimension, limit, spent, detail):
                return Exhausted(dimension, limit, spent, detail, fields)
            case Stopped(order, reason):
                return Stopped(order, reason, fields)
            case _:
                return Submitted(fields)

    def notice(self) -> str:
        """What the closing turn is told."""
        assert self.why is not None
        return f"{self.why.message.capitalize()}. This is the closing turn: SUBMIT what you have now."

    async def unless_cut(self, work: Awaitable[T]) -> T:
        """The outcome of `work`, or CutShort when the closing turn is asked for meanwhile."""
        task = asyncio.ensure_future(work)
        with self._cutting(task.cancel):
            try:
                return await task
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if self._asked is None or (current is not None and current.cancelling()):
                    raise
                raise CutShort from None

    @contextmanager
    def stopping(self, session: sandbox.Session) -> Iterator[None]:
        """Stop the cell that runs meanwhile when the closing turn is asked for, or when the time to work is over."""
        tasks: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        # Where the limit is waited at, a cell may use up the whole time: it runs again when there is more.
        if self.has_turn and self.why is None and not self._asks:
            self._arm()
        try:
            with self._cutting(lambda: tasks.add(loop.create_task(_stop_cell(session)))):
                yield
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            for task in tasks:
                task.cancel()

    @contextmanager
    def _cutting(self, cut: Callable[[], object]) -> Iterator[None]:
        self._cut = cut
        if self._asked is not None and self.why is None:
            asyncio.get_running_loop().call_soon(cut)
        try:
            yield
        finally:
            self._cut = None


def exhausted_by(refusal: BudgetExceeded) -> Exhausted:
    return Exhausted(refusal.dimension, str(refusal.limit), str(refusal.spent), refusal.detail)


async def _stop_cell(session: sandbox.Session) -> None:
    await session.interrupt()
    await asyncio.sleep(_INTERRUPT_SECONDS)
    await session.kill()
