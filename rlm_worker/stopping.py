"""How an attempt is ended from outside: by a stop, a kill, a pause, or a call that the control plane refused."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlm_worker.config import WorkerSettings
from rlm_worker.contracts.gateway import HoldRefused
from rlm_worker.contracts.trace import (
    ModelAnswered,
    StopObserved,
    StopVerified,
    SubcallLost,
    SubcallStarted,
)
from rlm_worker.endings import Ending, Stopped, Submitted, Waits
from rlm_worker.errors import LostAuthority, MustPark
from rlm_worker.journal import Open
from rlm_worker.loop import Repl
from rlm_worker.meter import Meter, whole
from rlm_worker.orders import Orders
from rlm_worker.trace import TraceWriter
from rlm_worker.workbench import Workbench

#: Time for an order to arrive here that the control plane already knows.
_ORDER_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """The parts of an attempt that its end needs."""

    bench: Workbench
    writer: TraceWriter
    meter: Meter
    orders: Orders
    settings: WorkerSettings
    #: What a REPL's task came to.
    ending_of: Callable[["asyncio.Task[Ending]"], Ending]

    async def run(self, repl: Repl) -> Ending:
        """Run a REPL until it ends, an order arrives, or the lease is lost: whichever is first."""
        running = asyncio.create_task(repl.run())
        await self.first(running, self.orders.stop, self.orders.pause)
        if running.done() and not self.orders.lost.done():
            return await self._ended(running)
        if self.orders.stop.done():
            return await self._stop(running, repl)
        return await self._pause(running, repl)

    async def first(self, *awaited: "asyncio.Future[Any]", seconds: float | None = None) -> None:
        """Wait for one of these, or for the loss of the lease, which ends everything."""
        waiting = {*awaited, self.orders.lost}
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self.orders.lost.done():
            for task in awaited:
                if isinstance(task, asyncio.Task):
                    await _cancel(task, self.bench)
            raise LostAuthority(self.orders.lost.result())

    async def _ended(self, running: "asyncio.Task[Ending]") -> Ending:
        """A call that was refused by the control plane: the order that explains it is on its way."""
        error = running.exception()
        if isinstance(error, LostAuthority) and isinstance(error.__cause__, HoldRefused):
            return await self.ordered(error)
        return self.ending_of(running)

    async def ordered(self, otherwise: LostAuthority) -> Ending:
        """Carry out the order that the control plane has given already; raise when none comes."""
        await self.first(self.orders.stop, self.orders.pause, seconds=_ORDER_SECONDS)
        if self.orders.stop.done():
            return await self._prove_stop()
        if self.orders.pause.done():
            return await self._prove_pause(None)
        raise otherwise

    async def _stop(self, running: "asyncio.Task[Ending]", repl: Repl) -> Ending:
        """A stop leaves a model a moment for a last SUBMIT, a kill leaves none; then nothing of the job runs any more."""
        order = self.orders.stop.result()
        if order.desired == "stop" and repl.closing.has_turn:
            # Not waited for: a control plane that is held up must not hold up the stop.
            self.writer.add_later(
                StopObserved(order="stop", detail=order.reason, waited_ms=self.orders.waited_ms("stop"))
            )
            repl.closing.ask(Stopped("stop", order.reason))
            await self.first(running, self.orders.kill, seconds=self.settings.stop_grace_seconds)
        ended = running.done() and not running.cancelled() and running.exception() is None
        ending = running.result() if ended else None
        wanted = await self._prove_stop(running)
        if isinstance(ending, Stopped | Submitted):
            return ending
        submitted = self.bench.journal.nodes[""].submitted
        return wanted if submitted is None else repl.closing.accepted(submitted)

    async def _prove_stop(self, running: "asyncio.Task[Ending] | None" = None) -> Stopped:
        """Kill what is left and record that nothing is; the order is what was wanted last."""
        order = self.orders.kill.result() if self.orders.kill.done() else self.orders.stop.result()
        wanted = Stopped("kill" if order.desired == "kill" else "stop", order.reason)
        seen = StopObserved(
            order=wanted.order, detail=order.reason, waited_ms=self.orders.waited_ms(wanted.order)
        )
        proved = await self._proof(running)
        self.writer.mend()
        await self.writer.write()
        await self.writer.write(
            *([proved] if self.bench.journal.stop_seen == wanted.order else [seen, proved])
        )
        return wanted

    async def _proof(self, running: "asyncio.Task[Ending] | None") -> StopVerified:
        began = time.monotonic()
        survivors = await _cancel(running, self.bench)
        return StopVerified(kill_ms=int((time.monotonic() - began) * 1000), survivors=survivors)

    async def _pause(self, running: "asyncio.Task[Ending]", repl: Repl) -> Ending:
        """No call leaves any more; those under way, and the cell, may end. What takes longer runs again on resume."""
        reason = self.orders.pause.result().reason
        self.bench.waiting.must(MustPark("paused", reason))
        await self.first(running, self.orders.stop, seconds=self.settings.pause_grace_seconds)
        if self.orders.stop.done():
            return await self._stop(running, repl)
        if running.done():
            ending = await self._ended(running)
            if not isinstance(ending, Waits):
                return ending
        return await self._prove_pause(running)

    async def _prove_pause(self, running: "asyncio.Task[Ending] | None") -> Waits:
        """Let go of everything. The lease ends with the proof, so that nothing can be written after it."""
        order = self.orders.pause.result()
        waited_ms = self.orders.waited_ms("pause")
        proved = await self._proof(running)
        self.writer.mend()
        seen = StopObserved(order="pause", detail=order.reason, waited_ms=waited_ms)
        await self.writer.write(*await self.close_holds(), seen, proved)
        return Waits("paused", order.reason)

    async def close_holds(self) -> list[SubcallLost | ModelAnswered]:
        """Calls that a stop or a limit cut off: charged when their request may have left, else given back."""
        await self.writer.write()
        journal = self.bench.journal
        unknown = [open_ for ordinal, open_ in journal.open.items() if ordinal in self.meter.open_holds()]
        lost = [lost_call(open_) for open_ in unknown]
        for event in lost:
            self.meter.charge(event.ordinal)
        for ordinal in self.meter.open_holds():
            self.meter.release(ordinal)
        return lost


def lost_call(open_: Open) -> SubcallLost | ModelAnswered:
    """What is recorded of a call whose outcome is unknown: its hold is charged."""
    if isinstance(open_, SubcallStarted):
        return SubcallLost(node=open_.node, ordinal=open_.ordinal, key=open_.key, charged=open_.hold)
    return ModelAnswered(
        node=open_.node,
        iteration=open_.iteration,
        ordinal=open_.ordinal,
        model=open_.model,
        text="",
        spend=whole(open_.hold),
        ok=False,
        error="the answer was not recorded; the hold is charged",
    )


async def _cancel(running: "asyncio.Task[Ending] | None", bench: Workbench) -> tuple[int, ...]:
    """Kill first, so that nothing of the cell outlives the order; then unwind."""
    survivors = await bench.kill_sessions()
    if running is not None:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return survivors + await bench.kill_sessions()
