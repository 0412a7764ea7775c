"""One attempt at a job: take up the record, run the REPL against orders and time, settle once."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sandbox
from rlm_worker.artifacts import uncollected
from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import EvidenceRef, JobResult, JobSpec, digest
from rlm_worker.contracts.gateway import (
    Claimed,
    Gateway,
    GatewayDown,
    GatewayRefused,
    ReadTraceRequest,
    RenewAnswer,
    SettleRequest,
    Steer,
)
from rlm_worker.contracts.job import ModelDriver
from rlm_worker.contracts.trace import (
    GENESIS,
    AttemptStarted,
    CellFinished,
    EvidenceSealed,
    ModelAnswered,
    StopObserved,
    StopVerified,
    SubcallLost,
    SubcallStarted,
    TraceEvent,
    check_link,
)
from rlm_worker.crashpoints import crash_here
from rlm_worker.endings import Ending, Failed, Stopped, Submitted, Waits
from rlm_worker.errors import LostAuthority
from rlm_worker.ground import Ground, Place
from rlm_worker.journal import Journal, Open
from rlm_worker.loop import Repl
from rlm_worker.meter import Meter, whole
from rlm_worker.parking import park
from rlm_worker.redaction import redact
from rlm_worker.results import attempt_ended, job_result, verdict, with_citations
from rlm_worker.trace import TraceWriter
from rlm_worker.versions import versions
from rlm_worker.workbench import OpenSession, Workbench

log = logging.getLogger(__name__)

#: Pause before the control plane is asked again after it was out of reach.
_AGAIN_SECONDS = 0.2
#: Time for an order to arrive here that the control plane already knows.
_ORDER_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class EvidenceKeeper:
    """How the worker vouches for evidence: its content digest, and whether it changed since it was staged."""

    #: The digest, or None when it was told to stop before it had one.
    seal: Callable[[EvidenceRef, threading.Event], str | None]
    changed: Callable[[EvidenceRef], bool]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What an attempt is given by the process it runs in."""

    gateway: Gateway
    worker_id: str
    settings: WorkerSettings
    evidence: EvidenceKeeper | None = None
    open_session: OpenSession = sandbox.open_session
    #: Where what jobs made is kept, by content.
    artifacts: Path | None = None
    #: Of a machine that is not the control plane's own.
    place: Place | None = None


class Orders:
    """What the control plane wants, as the attempt's event loop sees it."""

    def __init__(self) -> None:
        self.stop: asyncio.Future[RenewAnswer] = asyncio.get_running_loop().create_future()
        #: Set when there is no grace, or none any more.
        self.kill: asyncio.Future[RenewAnswer] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._steers: list[Steer] = []

    def hear(self, answer: RenewAnswer) -> None:
        self._steers.extend(answer.steers)
        if answer.desired in ("stop", "kill") and not self.stop.done():
            self.stop.set_result(answer)
        if answer.desired == "kill" and not self.kill.done():
            self.kill.set_result(answer)

    def lose(self, why: str) -> None:
        if not self.lost.done():
            self.lost.set_result(why)

    def take_steers(self) -> tuple[Steer, ...]:
        taken, self._steers = tuple(self._steers), []
        return taken


class Attempt:
    """One try at a job under one lease."""

    def __init__(
        self, claimed: Claimed, parts: Parts, orders: Orders, *, ground: Ground | None = None
    ) -> None:
        self._claimed = claimed
        self._ground = ground or Ground(spec=claimed.spec, artifacts=parts.artifacts)
        self._spec: JobSpec = self._ground.spec
        self._parts = parts
        self._orders = orders
        self._journal = Journal()
        self._first_cell_ran = asyncio.Event()
        self._meter = Meter(
            self._spec.budget,
            already_ms=claimed.spent_wall_time_ms,
            has_closing_turn=isinstance(self._spec.driver, ModelDriver),
            closing_seconds=parts.settings.closing_seconds,
        )
        self._writer = TraceWriter(
            parts.gateway,
            job_id=self._spec.job_id,
            fence=claimed.lease.fence,
            events=claimed.trace_events,
            head=claimed.trace_head,
            observe=self._observe,
            patience_seconds=claimed.lease.ttl_ms / 1000,
        )
        self._bench = Workbench(
            spec=self._spec,
            settings=parts.settings,
            journal=self._journal,
            writer=self._writer,
            open_session=parts.open_session,
            artifacts=self._ground.artifacts,
            hand_in=self._ground.hand_in,
        )
        self._bench.answers = {answer.question: answer for answer in claimed.answers}

    async def run(self) -> JobResult | None:
        """Run and settle; None when the job was parked. Raises LostAuthority when another attempt may be at work."""
        enough = threading.Event()
        try:
            await self._take_up()
            sealing = asyncio.create_task(self._seal(enough))
            try:
                ending = self._ground.refused or await self._against_orders()
                if isinstance(ending, Waits):
                    parked = await self._park(ending)
                    if parked is None:
                        return None
                    ending = parked
                return await self._settle(ending, sealing)
            finally:
                enough.set()
                sealing.cancel()
        finally:
            await self._bench.kill_sessions()
            await self._bench.models.close()
            await self._writer.close()

    def fence(self) -> None:
        """Kill what runs, from any thread: the lease is lost, and the event loop may be the thing that is stuck."""
        self._bench.kill_now()

    def _observe(self, event: TraceEvent) -> None:
        self._journal.fold(event)
        if isinstance(event, CellFinished):
            self._first_cell_ran.set()

    async def _take_up(self) -> None:
        """Read what earlier attempts recorded; charge the calls whose outcome died with them."""
        await asyncio.to_thread(self._read_trace)
        iterations = sum(len(node.iterations) for node in self._journal.nodes.values())
        self._meter.restore_iterations(iterations - self._journal.inherited_iterations)
        lost = [_lost(open_) for open_ in self._journal.open.values()]
        for event in lost:
            self._meter.charge(event.ordinal)
        started = AttemptStarted(
            attempt=self._claimed.lease.attempt,
            worker_id=self._parts.worker_id,
            resumed_iterations=iterations,
            versions=versions(),
            spec_digest=digest(self._claimed.spec.model_dump(mode="json")),
        )
        await self._writer.write(started, *lost)

    def _read_trace(self) -> None:
        seq, head = 0, GENESIS
        while seq < self._claimed.trace_events:
            page = self._parts.gateway.read_trace(
                ReadTraceRequest(job_id=self._spec.job_id, fence=self._claimed.lease.fence, after=seq)
            )
            for record in page.records:
                check_link(record, seq=seq, prev=head)
                event = record.typed()
                self._journal.fold(event)
                self._restore(event, seq)
                seq, head = seq + 1, record.hash

    def _restore(self, event: TraceEvent, seq: int) -> None:
        """Count what earlier attempts spent, and nothing of a past that another job has paid for."""
        inherited = self._journal.inherited_events
        if seq > inherited or not inherited:
            self._meter.restore(event)
        elif seq == inherited:
            self._journal.close_past()

    async def _against_orders(self) -> Ending:
        """Run the REPL until it ends, a stop arrives, or the lease is lost: whichever is first."""
        repl = Repl(self._bench, self._spec, meter=self._meter)
        repl.steers = self._orders.take_steers
        running = asyncio.create_task(repl.run())
        await self._first(running, self._orders.stop)
        if running.done() and not self._orders.lost.done():
            return _ending_of(running)
        return await self._stop(running, repl)

    async def _first(self, *awaited: "asyncio.Future[Any]", seconds: float | None = None) -> None:
        """Wait for one of these, or for the loss of the lease, which ends everything."""
        waiting = {*awaited, self._orders.lost}
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._orders.lost.done():
            for task in awaited:
                if isinstance(task, asyncio.Task):
                    await _cancel(task, self._bench)
            raise LostAuthority(self._orders.lost.result())

    async def _stop(self, running: "asyncio.Task[Ending]", repl: Repl) -> Ending:
        """A stop leaves a model a moment for a last SUBMIT, a kill leaves none; then nothing of the job runs any more."""
        order = self._orders.stop.result()
        if order.desired == "stop" and repl.closing.has_turn:
            await self._writer.write(StopObserved(order="stop", detail=order.reason))
            repl.closing.ask(Stopped("stop", order.reason))
            await self._first(running, self._orders.kill, seconds=self._parts.settings.stop_grace_seconds)
        ended = running.done() and not running.cancelled() and running.exception() is None
        ending = running.result() if ended else None
        wanted = await self._prove_stop(running)
        if isinstance(ending, Stopped | Submitted):
            return ending
        submitted = self._journal.nodes[""].submitted
        return wanted if submitted is None else repl.closing.accepted(submitted)

    async def _prove_stop(self, running: "asyncio.Task[Ending] | None" = None) -> Stopped:
        """Kill what is left and record that nothing is; the order is what was wanted last."""
        order = self._orders.kill.result() if self._orders.kill.done() else self._orders.stop.result()
        wanted = Stopped("kill" if order.desired == "kill" else "stop", order.reason)
        began = time.monotonic()
        survivors = await _cancel(running, self._bench)
        kill_ms = int((time.monotonic() - began) * 1000)
        seen = StopObserved(order=wanted.order, detail=order.reason)
        proved = StopVerified(kill_ms=kill_ms, survivors=survivors)
        await self._writer.write(*([proved] if self._journal.stop_seen == wanted.order else [seen, proved]))
        return wanted

    async def _park(self, wait: Waits) -> Ending | None:
        """Let go of the job: None when it is parked, else the order that is followed instead."""
        await self._bench.kill_sessions()
        await self._writer.write(*await self._close_holds())
        lease, lost = self._claimed.lease, self._orders.lost
        if await park(self._parts.gateway, self._writer, lease, wait, lost=lost):
            return None
        await self._first(self._orders.stop, seconds=_ORDER_SECONDS)
        if not self._orders.stop.done():
            raise LostAuthority("the job was not parked, and no order to stop it came")
        return await self._prove_stop()

    async def _seal(self, enough: threading.Event) -> None:
        """Take the evidence's content digests while the job runs; after the first cell, whose start they would slow."""
        await self._first_cell_ran.wait()
        keeper = self._parts.evidence
        for ref in self._spec.input_artifacts:
            if keeper is None or ref.name in self._journal.sealed:
                continue
            content = await asyncio.to_thread(keeper.seal, ref, enough)
            if content is None:
                return
            changed = await asyncio.to_thread(keeper.changed, ref)
            await self._writer.write(EvidenceSealed(name=ref.name, content_digest=content, changed=changed))

    async def _sealed(self, sealing: "asyncio.Task[None]") -> str:
        """Wait for the digests while there is time and no order. The answer is not lost with them; returns what to say."""
        self._first_cell_ran.set()
        waiting: set[asyncio.Future[Any]] = {sealing, self._orders.stop, self._orders.lost}
        seconds = max(0.0, self._meter.seconds_left())
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._orders.lost.done():
            raise LostAuthority(self._orders.lost.result())
        if not sealing.done():
            return " [evidence was not sealed: the job's time was over or a stop was ordered]"
        error = sealing.exception()
        if isinstance(error, LostAuthority):
            raise error
        return f" [evidence could not be sealed: {error}]" if error else ""

    async def _settle(self, ending: Ending, sealing: "asyncio.Task[None]") -> JobResult:
        unsealed = "" if isinstance(ending, Stopped) else await self._sealed(sealing)
        said = verdict(ending, draft=self._journal.nodes[""].draft)
        changed = [name for name, sealed in self._journal.sealed.items() if sealed.changed]
        said["message"] += unsealed + uncollected(self._spec, self._journal)
        if changed:
            said["message"] += f" [evidence changed while the job ran: {', '.join(sorted(changed))}]"
        await self._writer.write(*await self._close_holds())
        await self._writer.write(attempt_ended(said, attempt=self._claimed.lease.attempt))
        result = job_result(
            said,
            spec=self._spec,
            attempt=self._claimed.lease.attempt,
            ending=ending,
            journal=self._journal,
            usage=self._meter.usage(),
            trace_ref=self._writer.ref,
        )
        if result.structured_output is not None:
            report = self._bench.citations.report
            result = with_citations(
                result, await asyncio.to_thread(report, result.structured_output, self._spec.output_schema)
            )
        crash_here("settle.before")
        await self._deliver(redact(result))
        crash_here("settle.after")
        return result

    async def _close_holds(self) -> list[SubcallLost | ModelAnswered]:
        """Calls that a stop or a limit cut off: charged when their request may have left, else given back."""
        await self._writer.write()
        unknown = [
            open_ for ordinal, open_ in self._journal.open.items() if ordinal in self._meter.open_holds()
        ]
        lost = [_lost(open_) for open_ in unknown]
        for event in lost:
            self._meter.charge(event.ordinal)
        for ordinal in self._meter.open_holds():
            self._meter.release(ordinal)
        return lost

    async def _deliver(self, result: JobResult) -> None:
        """Settle; a control plane that is out of reach is asked again while the lease lasts."""
        request = SettleRequest(job_id=self._spec.job_id, fence=self._claimed.lease.fence, result=result)
        while not self._orders.lost.done():
            try:
                await asyncio.to_thread(self._parts.gateway.settle, request)
            except GatewayDown:
                await asyncio.sleep(_AGAIN_SECONDS)
            except GatewayRefused as refused:
                raise LostAuthority(
                    f"the result of job {self._spec.job_id} was refused: {refused}"
                ) from refused
            else:
                return
        raise LostAuthority(self._orders.lost.result())


def _lost(open_: Open) -> SubcallLost | ModelAnswered:
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


def _ending_of(running: "asyncio.Task[Ending]") -> Ending:
    """A defect of ours ends the job with its true reason: another attempt would meet it again."""
    error = running.exception()
    if error is None:
        return running.result()
    if isinstance(error, LostAuthority) or not isinstance(error, Exception):
        raise error
    log.error("attempt_failed", exc_info=error)
    return Failed("sandbox_fatal", f"a defect of the worker: {type(error).__name__}: {error}")


async def _cancel(running: "asyncio.Task[Ending] | None", bench: Workbench) -> tuple[int, ...]:
    """Kill first, so that nothing of the cell outlives the order; then unwind."""
    survivors = await bench.kill_sessions()
    if running is not None:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return survivors + await bench.kill_sessions()
