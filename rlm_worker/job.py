"""One attempt at a job: take up the record, run the REPL against orders and time, settle once."""

import asyncio
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import sandbox
from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import EvidenceRef, JobResult, JobSpec
from rlm_worker.contracts.gateway import (
    Claimed,
    Gateway,
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
    EvidenceSealed,
    ModelAnswered,
    StopObserved,
    StopVerified,
    SubcallLost,
    SubcallStarted,
    check_link,
)
from rlm_worker.crashpoints import crash_here
from rlm_worker.endings import Ending, Submitted
from rlm_worker.errors import LostAuthority
from rlm_worker.journal import Journal
from rlm_worker.loop import Repl
from rlm_worker.meter import Meter, whole
from rlm_worker.redaction import redact
from rlm_worker.results import Stopped, attempt_ended, job_result, verdict, with_citations
from rlm_worker.trace import TraceWriter
from rlm_worker.workbench import OpenSession, Workbench


@dataclass(frozen=True, kw_only=True)
class EvidenceKeeper:
    """How the worker vouches for evidence: its content digest, and whether it changed since it was staged."""

    seal: Callable[[EvidenceRef], str]
    changed: Callable[[EvidenceRef], bool]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What an attempt is given by the process it runs in."""

    gateway: Gateway
    worker_id: str
    settings: WorkerSettings
    evidence: EvidenceKeeper | None = None
    open_session: OpenSession = sandbox.open_session


class Orders:
    """What the control plane wants, as the attempt's event loop sees it."""

    def __init__(self) -> None:
        self.stop: asyncio.Future[RenewAnswer] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._steers: list[Steer] = []

    def hear(self, answer: RenewAnswer) -> None:
        self._steers.extend(answer.steers)
        if answer.desired in ("stop", "kill") and not self.stop.done():
            self.stop.set_result(answer)

    def lose(self, why: str) -> None:
        if not self.lost.done():
            self.lost.set_result(why)

    def take_steers(self) -> tuple[Steer, ...]:
        taken, self._steers = tuple(self._steers), []
        return taken


class Attempt:
    """One try at a job under one lease."""

    def __init__(self, claimed: Claimed, parts: Parts, orders: Orders) -> None:
        self._claimed = claimed
        self._spec: JobSpec = claimed.spec
        self._parts = parts
        self._orders = orders
        self._journal = Journal()
        self._meter = Meter(
            self._spec.budget,
            already_ms=claimed.spent_wall_time_ms,
            has_closing_turn=isinstance(self._spec.driver, ModelDriver),
        )
        self._writer = TraceWriter(
            parts.gateway,
            job_id=self._spec.job_id,
            fence=claimed.lease.fence,
            events=claimed.trace_events,
            head=claimed.trace_head,
            observe=self._journal.fold,
        )

    async def run(self) -> JobResult:
        """Run and settle. Raises LostAuthority when another attempt may be at work; then nothing was settled."""
        bench: Workbench | None = None
        try:
            await self._take_up()
            bench = Workbench(
                spec=self._spec,
                settings=self._parts.settings,
                journal=self._journal,
                writer=self._writer,
                open_session=self._parts.open_session,
            )
            sealing = asyncio.create_task(self._seal())
            try:
                ending, repl = await self._against_orders(bench)
                return await self._settle(ending, repl, sealing)
            finally:
                sealing.cancel()
        finally:
            if bench is not None:
                await bench.kill_sessions()
                await bench.models.close()
            await self._writer.close()

    async def _take_up(self) -> None:
        """Read what earlier attempts recorded; charge the calls whose outcome died with them."""
        await asyncio.to_thread(self._read_trace)
        iterations = sum(len(node.iterations) for node in self._journal.nodes.values())
        self._meter.restore_iterations(iterations)
        lost = [
            SubcallLost(node=open_.node, ordinal=open_.ordinal, key=open_.key, charged=open_.hold)
            if isinstance(open_, SubcallStarted)
            else ModelAnswered(
                node=open_.node,
                iteration=open_.iteration,
                ordinal=open_.ordinal,
                model=open_.model,
                text="",
                spend=whole(open_.hold),
                ok=False,
                error="the worker died before the answer was recorded; the hold is charged",
            )
            for open_ in self._journal.open.values()
        ]
        for event in lost:
            self._meter.charge(event.ordinal)
        started = AttemptStarted(
            attempt=self._claimed.lease.attempt,
            worker_id=self._parts.worker_id,
            resumed_iterations=iterations,
            versions=_versions(),
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
                self._meter.restore(event)
                seq, head = seq + 1, record.hash

    async def _against_orders(self, bench: Workbench) -> tuple[Ending | Stopped, Repl]:
        """Run the REPL until it ends, a stop arrives, or the lease is lost: whichever is first."""
        repl = Repl(bench, self._spec, meter=self._meter)
        repl.steers = self._orders.take_steers
        running = asyncio.create_task(repl.run())
        waiting: set[asyncio.Future[Any]] = {running, self._orders.stop, self._orders.lost}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if self._orders.lost.done():
            await _cancel(running, bench)
            raise LostAuthority(self._orders.lost.result())
        if running.done():
            return running.result(), repl
        return await self._stop(running, repl, bench), repl

    async def _stop(self, running: "asyncio.Task[Ending]", repl: Repl, bench: Workbench) -> Ending | Stopped:
        order = self._orders.stop.result()
        began = time.monotonic()
        survivors = await _cancel(running, bench)
        kill_ms = int((time.monotonic() - began) * 1000)
        wanted: Literal["kill", "stop"] = "kill" if order.desired == "kill" else "stop"
        await self._writer.write(
            StopObserved(order=wanted, detail=order.reason),
            StopVerified(kill_ms=kill_ms, survivors=survivors),
        )
        if repl.host.submitted is not None:
            return Submitted(repl.host.submitted)
        return Stopped(wanted, order.reason)

    async def _seal(self) -> None:
        """Take the evidence's content digests while the job runs, so that its start does not wait for them."""
        keeper = self._parts.evidence
        for ref in self._spec.input_artifacts:
            if keeper is None or ref.name in self._journal.sealed:
                continue
            content = await asyncio.to_thread(keeper.seal, ref)
            changed = await asyncio.to_thread(keeper.changed, ref)
            await self._writer.write(EvidenceSealed(name=ref.name, content_digest=content, changed=changed))

    async def _sealed(self, sealing: "asyncio.Task[None]") -> str:
        """Wait for the digests, unless an order comes first. The answer is not lost with them; returns what to say."""
        waiting: set[asyncio.Future[Any]] = {sealing, self._orders.stop, self._orders.lost}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if self._orders.lost.done():
            raise LostAuthority(self._orders.lost.result())
        if not sealing.done():
            return " [evidence was not sealed: a stop was ordered]"
        error = sealing.exception()
        if isinstance(error, LostAuthority):
            raise error
        return f" [evidence could not be sealed: {error}]" if error else ""

    async def _settle(self, ending: Ending | Stopped, repl: Repl, sealing: "asyncio.Task[None]") -> JobResult:
        unsealed = "" if isinstance(ending, Stopped) else await self._sealed(sealing)
        draft = self._journal.nodes[""].draft
        said = verdict(ending, draft=draft)
        said["message"] += unsealed
        changed = [name for name, sealed in self._journal.sealed.items() if sealed.changed]
        if changed:
            said["message"] += f" [evidence changed while the job ran: {', '.join(sorted(changed))}]"
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
            report = repl.bench.citations.report(result.structured_output, self._spec.output_schema)
            result = with_citations(result, report)
        crash_here("settle.before")
        result = redact(result)
        request = SettleRequest(job_id=self._spec.job_id, fence=self._claimed.lease.fence, result=result)
        try:
            await asyncio.to_thread(self._parts.gateway.settle, request)
        except GatewayRefused as refused:
            raise LostAuthority(f"the result of job {self._spec.job_id} was refused: {refused}") from refused
        return result


async def _cancel(running: "asyncio.Task[Ending]", bench: Workbench) -> tuple[int, ...]:
    """Kill first, so that nothing of the cell outlives the order; then unwind."""
    survivors = await bench.kill_sessions()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    return survivors + await bench.kill_sessions()


def _versions() -> dict[str, str]:
    try:
        custody = version("custody")
    except PackageNotFoundError:
        custody = "source"
    return {"custody": custody, "python": platform.python_version()}
