"""One attempt at a job: take up the record, run the REPL against orders and time, settle once."""

import asyncio
import logging
import threading
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
    Retune,
    SettleRequest,
)
from rlm_worker.contracts.job import ModelDriver
from rlm_worker.contracts.limits import Retuned
from rlm_worker.contracts.trace import (
    GENESIS,
    AttemptStarted,
    CellFinished,
    EvidenceSealed,
    TraceEvent,
    check_link,
)
from rlm_worker.crashpoints import crash_here
from rlm_worker.endings import Ending, Failed, Stopped, Waits
from rlm_worker.errors import LostAuthority
from rlm_worker.ground import Ground, Place
from rlm_worker.journal import Journal
from rlm_worker.loop import Repl
from rlm_worker.meter import Meter
from rlm_worker.orders import Orders
from rlm_worker.parking import park
from rlm_worker.redaction import redact
from rlm_worker.results import attempt_ended, job_result, verdict, with_citations
from rlm_worker.stopping import Stopping, lost_call
from rlm_worker.trace import TraceWriter
from rlm_worker.versions import versions
from rlm_worker.workbench import OpenSession, Workbench

log = logging.getLogger(__name__)

#: Pause before the control plane is asked again after it was out of reach.
_AGAIN_SECONDS = 0.2


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


class Attempt:
    """One try at a job under one lease."""

    def __init__(
        self, claimed: Claimed, parts: Parts, orders: Orders, *, ground: Ground | None = None
    ) -> None:
        self._claimed = claimed
        self._ground = ground or Ground(spec=claimed.spec, artifacts=parts.artifacts)
        retune = claimed.retune
        budget = claimed.spec.budget if retune is None else retune.budget
        self._spec: JobSpec = self._ground.spec.model_copy(update={"budget": budget})
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
        #: Version of the limits that came while it runs.
        self._retuned = 0
        self._stopping = Stopping(
            bench=self._bench,
            writer=self._writer,
            meter=self._meter,
            orders=orders,
            settings=parts.settings,
            ending_of=_ending_of,
        )
        self._bench.answers = {answer.question: answer for answer in claimed.answers}

    async def run(self) -> JobResult | None:
        """Run and settle; None when the job was parked. Raises LostAuthority when another attempt may be at work."""
        enough = threading.Event()
        try:
            await self._take_up()
            sealing = asyncio.create_task(self._seal(enough))
            try:
                self._repl = Repl(self._bench, self._spec, meter=self._meter)
                self._repl.steers = self._orders.take_steers
                self._orders.on_retune = self._retune
                ending = self._ground.refused or await self._stopping.run(self._repl)
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
        lost = [lost_call(open_) for open_ in self._journal.open.values()]
        for event in lost:
            self._meter.charge(event.ordinal)
        started = AttemptStarted(
            attempt=self._claimed.lease.attempt,
            worker_id=self._parts.worker_id,
            resumed_iterations=iterations,
            versions=versions(),
            spec_digest=digest(self._claimed.spec.model_dump(mode="json")),
        )
        await self._writer.write(started, *lost, *self._retuned_meanwhile())

    def _retuned_meanwhile(self) -> list[Retuned]:
        """Limits that were changed while nobody worked on the job."""
        retune = self._claimed.retune
        if retune is None or retune.version <= self._journal.budget_version:
            return []
        return [_recorded(retune)]

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

    async def _park(self, wait: Waits) -> Ending | None:
        """Let go of the job: None when it is parked or paused, else the order that is followed instead."""
        if wait.reason != "paused":
            await self._bench.kill_sessions()
            await self._writer.write(*await self._stopping.close_holds())
            lease, lost = self._claimed.lease, self._orders.lost
            if await park(self._parts.gateway, self._writer, lease, wait, lost=lost):
                return None
            otherwise = LostAuthority("the job was not parked, and no order to stop it came")
            ordered = await self._stopping.ordered(otherwise)
            return None if isinstance(ordered, Waits) else ordered
        return None

    def _retune(self, retune: Retune) -> None:
        """Work under other limits from now on. The record says so, and a later attempt is told again."""
        if retune.version <= max(self._journal.budget_version, self._retuned):
            return
        self._retuned = retune.version
        self._meter.retune(retune.budget)
        self._writer.add_later(_recorded(retune))
        self._repl.retuned()

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
        await self._writer.write(*await self._stopping.close_holds())
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


def _recorded(retune: Retune) -> Retuned:
    return Retuned(version=retune.version, budget=retune.budget, by=retune.by, reason=retune.reason)


def _ending_of(running: "asyncio.Task[Ending]") -> Ending:
    """A defect of ours ends the job with its true reason: another attempt would meet it again."""
    error = running.exception()
    if error is None:
        return running.result()
    if isinstance(error, LostAuthority) or not isinstance(error, Exception):
        raise error
    log.error("attempt_failed", exc_info=error)
    return Failed("sandbox_fatal", f"a defect of the worker: {type(error).__name__}: {error}")
