"""TraceWriter: links events into the job's chain and makes them durable, many at a time. The only way a worker records."""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from rlm_worker.contracts.gateway import (
    GatewayDown,
    GatewayRefused,
    HoldRefused,
    RecordAnswer,
    RecordRequest,
)
from rlm_worker.contracts.result import TraceRef
from rlm_worker.contracts.trace import TraceEvent, TraceRecord, link
from rlm_worker.crashpoints import crash_at_write
from rlm_worker.errors import LostAuthority
from rlm_worker.redaction import redact

#: Events in one request: large enough to share a commit, small enough to answer quickly.
_GROUP = 512
#: How long an event that nobody waits for may stay in memory: long enough to share a commit with many others.
_LINGER_SECONDS = 0.025
_AGAIN_SECONDS = 0.2
_HOLDS = ("subcall_started", "model_asked")


class Recorder(Protocol):
    """Where records go: the gateway, of which a writer needs nothing else."""

    def record(self, request: RecordRequest) -> RecordAnswer: ...


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class TraceWriter:
    """Appends to one job's trace under one fence. Events become durable in the order they were added."""

    def __init__(
        self,
        gateway: Recorder,
        *,
        job_id: str,
        fence: int,
        events: int,
        head: str,
        observe: Callable[[TraceEvent], None] = lambda _: None,
        patience_seconds: float = 0.0,
    ) -> None:
        """`patience_seconds`: how long a control plane that is out of reach is asked again."""
        self._gateway = gateway
        self._job_id = job_id
        self._fence = fence
        self._seq = events
        self._head = head
        self._observe = observe
        self._patience = patience_seconds
        self._pending: list[tuple[int, TraceEvent]] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._flusher: asyncio.Task[None] | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._broken: LostAuthority | None = None
        #: What could not be recorded.
        self._refused: list[tuple[int, TraceEvent]] = []
        # One thread, so that groups reach the gateway in the order of their sequence numbers.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="custody-trace")

    @property
    def ref(self) -> TraceRef:
        return TraceRef(job_id=self._job_id, events=self._seq, head=self._head)

    def add(self, *events: TraceEvent) -> "asyncio.Future[None]":
        """Queue events; the future is done when they are durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._broken is not None:
            done.set_exception(self._broken)
            return done
        self._queue(events)
        self._waiters.append(done)
        self._start()
        return done

    def add_later(self, *events: TraceEvent) -> None:
        """Queue events that nobody waits for: durable with the next group, or by themselves after a moment."""
        if self._broken is None:
            self._queue(events)
            self._linger()

    def _queue(self, events: Sequence[TraceEvent]) -> None:
        at_ms = _now_ms()
        self._pending.extend((at_ms, event) for event in events)

    def _linger(self) -> None:
        if self._lingering is None:
            self._lingering = asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._start)

    def _start(self) -> "asyncio.Task[None]":
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())
        return self._flusher

    async def write(self, *events: TraceEvent) -> None:
        """Record events and return when they, and all added before them, are durable."""
        await asyncio.shield(self.add(*events))

    def mend(self) -> None:
        """After a hold was refused: go on without it and without what followed from it, so that the end can be recorded."""
        if self._broken is not None and isinstance(self._broken.__cause__, HoldRefused):
            self._broken = None
            self._pending = [(at, event) for at, event in self._refused if event.kind not in _HOLDS]
            self._refused = []

    async def close(self) -> None:
        """Wait for what was added, then let the thread go."""
        while self._pending or (self._flusher is not None and not self._flusher.done()):
            await asyncio.gather(self._start(), return_exceptions=True)
        self._thread.shutdown(wait=False)

    async def _flush(self) -> None:
        """Make durable what somebody waits for, and all that was added before it."""
        while await self._flush_group() and (self._waiters or len(self._pending) >= _GROUP):
            pass
        if self._pending:
            self._linger()

    async def _flush_group(self) -> bool:
        """One request. False when it was refused: nothing can be recorded any more."""
        group, self._pending = self._pending[:_GROUP], self._pending[_GROUP:]
        waiters = [] if self._pending else self._waiters
        if not self._pending:
            self._waiters = []
        try:
            if group:
                group = await asyncio.get_running_loop().run_in_executor(self._thread, self._record, group)
            for _, event in group:
                self._observe(event)
        except Exception as error:  # noqa: BLE001 - whatever the reason, a gap in the record is never closed over
            self._refused = [*group, *self._pending]
            self._fail(error, waiters)
            return False
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        return True

    def _record(self, group: list[tuple[int, TraceEvent]]) -> list[tuple[int, TraceEvent]]:
        """Send a group; returns it as it was recorded, without secrets."""
        seq, head = self._seq, self._head
        records: list[TraceRecord] = []
        group = [(at_ms, redact(event)) for at_ms, event in group]
        for at_ms, event in group:
            record = link(event, seq=seq, at_ms=at_ms, prev=head)
            records.append(record)
            seq, head = seq + 1, record.hash
        request = RecordRequest.made(job_id=self._job_id, fence=self._fence, records=tuple(records))
        self._send(request)
        self._seq, self._head = seq, head
        return group

    def _send(self, request: RecordRequest) -> None:
        """The same group again is answered the same, so one whose fate is unknown may be sent twice."""
        give_up = time.monotonic() + self._patience
        while True:
            try:
                crash_at_write("journal.before", (record.kind for record in request.records))
                self._gateway.record(request)
                crash_at_write("journal.after", (record.kind for record in request.records))
            except GatewayDown:
                if time.monotonic() >= give_up:
                    raise
                time.sleep(_AGAIN_SECONDS)
            else:
                return

    def _fail(self, error: Exception, waiters: list["asyncio.Future[None]"]) -> None:
        was = "was refused" if isinstance(error, GatewayRefused) else "cannot be written"
        self._broken = LostAuthority(f"the trace of job {self._job_id} {was}: {error}")
        self._broken.__cause__ = error
        self._pending = []
        for waiter in [*waiters, *self._waiters]:
            if not waiter.done():
                waiter.set_exception(self._broken)
                waiter.exception()  # read once here: nobody may be waiting for this one
        self._waiters = []
