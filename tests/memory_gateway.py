"""A gateway in memory for worker tests; the gateway's contract suite runs over it and over the real one."""

import threading
import time

from pydantic import JsonValue

from rlm_worker.contracts import Budget, JobResult, JobSpec, TraceRecord
from rlm_worker.contracts.base import PROTOCOL_VERSION
from rlm_worker.contracts.gateway import (
    AwaitOrdersRequest,
    ChainRefused,
    Claimed,
    ClaimRequest,
    Desired,
    Lease,
    LeaseLost,
    NotClaimed,
    ParkAnswer,
    ParkRequest,
    PersonAnswer,
    ReadTraceAnswer,
    ReadTraceRequest,
    RecordAnswer,
    RecordRequest,
    RenewAnswer,
    RenewRequest,
    Retune,
    SettleAnswer,
    SettleRequest,
    Steer,
)
from rlm_worker.contracts.trace import GENESIS, BrokenChain, check_link
from rlm_worker.journal import Journal
from rlm_worker.schemas import shape_of

Guarded = RenewRequest | AwaitOrdersRequest | RecordRequest | ReadTraceRequest | SettleRequest | ParkRequest


class MemoryGateway:
    """One job, no database. Orders are given by `order`; the lease is lost by `expire`; `unpark` ends waiting."""

    def __init__(self, spec: JobSpec, *, ttl_ms: int = 15_000) -> None:
        self.spec = spec
        self.records: list[TraceRecord] = []
        self.result: JobResult | None = None
        self.refused_writes = 0
        self._ttl_ms = ttl_ms
        self._fence = 0
        self._live = False
        self._until = 0.0
        self._desired: Desired = "run"
        #: What the job is parked for, and every park so far.
        self.parked: ParkRequest | None = None
        self.parks: list[ParkRequest] = []
        self._answers: list[PersonAnswer] = []
        self._steers: list[Steer] = []
        #: The latest change of limits, and whether a pause is complete.
        self._retune: Retune | None = None
        self.held = False
        #: What the worker was answered last.
        self.told: Desired = "run"
        self._changed = threading.Condition()

    def order(self, desired: Desired) -> None:
        with self._changed:
            self._desired = desired
            self._changed.notify_all()

    def resume(self) -> None:
        """What was paused goes on."""
        with self._changed:
            self._desired, self.held = "run", False

    def retune(self, budget: Budget, *, reason: str = "") -> None:
        with self._changed:
            version = 1 if self._retune is None else self._retune.version + 1
            self._retune = Retune(version=version, budget=budget, by="ada", reason=reason)
            self._changed.notify_all()

    def steer(self, text: str) -> None:
        with self._changed:
            self._steers.append(Steer(steer_id=len(self._steers) + 1, text=text))
            self._changed.notify_all()

    def expire(self) -> None:
        with self._changed:
            self._live = False
            self._changed.notify_all()

    def answer(self, question: int, value: JsonValue, *, by: str = "ada") -> None:
        """What a person answers; the job is no longer parked."""
        with self._changed:
            said = PersonAnswer(question=question, value=value, by=by, answered_ms=1_700_000_000_000)
            self._answers.append(said)
            self.parked = None

    def unpark(self) -> None:
        with self._changed:
            self.parked = None

    def claim(self, request: ClaimRequest) -> Claimed | NotClaimed:
        with self._changed:
            return self._claim(request)

    def _claim(self, request: ClaimRequest) -> Claimed | NotClaimed:
        if request.protocol != PROTOCOL_VERSION:
            return NotClaimed(reason="protocol")
        if request.job_id != self.spec.job_id:
            return NotClaimed(reason="unknown_job")
        if self.result is not None:
            return NotClaimed(reason="not_ready", detail="settled")
        if self._live:
            return NotClaimed(reason="leased")
        if self.held:
            return NotClaimed(reason="not_ready", detail="held")
        if self.parked is not None:
            return NotClaimed(reason="not_ready", detail="parked")
        if request.generation != 0:
            return NotClaimed(reason="stale_generation")
        if self._desired in ("stop", "kill"):
            return NotClaimed(reason="stopped")
        self._fence += 1
        self._live = True
        self._until = time.monotonic() + self._ttl_ms / 1000
        lease = Lease(job_id=request.job_id, attempt=self._fence, fence=self._fence, ttl_ms=self._ttl_ms)
        return Claimed(
            spec=self.spec,
            lease=lease,
            trace_events=len(self.records),
            trace_head=self._head,
            answers=tuple(self._answers),
            retune=self._retune,
        )

    @property
    def _head(self) -> str:
        return self.records[-1].hash if self.records else GENESIS

    def _check(self, request: Guarded) -> None:
        is_mine = (request.job_id, request.fence) == (self.spec.job_id, self._fence)
        if not self._live or not is_mine or time.monotonic() >= self._until:
            self.refused_writes += 1
            raise LeaseLost(f"fence {request.fence} is stale")

    def renew(self, request: RenewRequest) -> RenewAnswer:
        with self._changed:
            self._check(request)
            self._until = time.monotonic() + self._ttl_ms / 1000
            return self._answer(request)

    def _answer(self, request: RenewRequest | AwaitOrdersRequest) -> RenewAnswer:
        self.told = self._desired
        fresh = tuple(steer for steer in self._steers if steer.steer_id > request.steer_seen)
        retune = self._retune if self._is_retuned(request) else None
        return RenewAnswer(desired=self._desired, steers=fresh, ttl_ms=self._ttl_ms, retune=retune)

    def _is_retuned(self, request: RenewRequest | AwaitOrdersRequest) -> bool:
        return self._retune is not None and self._retune.version > request.budget_seen

    def await_orders(self, request: AwaitOrdersRequest) -> RenewAnswer:
        with self._changed:
            self._changed.wait_for(
                lambda: (
                    not self._live
                    or self._desired != request.seen
                    or len(self._steers) > request.steer_seen
                    or self._is_retuned(request)
                ),
                timeout=request.timeout_ms / 1000,
            )
            self._check(request)
            return self._answer(request)

    def record(self, request: RecordRequest) -> RecordAnswer:
        with self._changed:
            self._check(request)
            self._append(request.records)
            if self._desired == "pause" and any(each.kind == "stop_verified" for each in request.records):
                # The proof of a pause ends its lease.
                self.held, self._live = True, False
                self._changed.notify_all()
            return RecordAnswer(events=len(self.records), head=self._head)

    def _append(self, records: tuple[TraceRecord, ...]) -> None:
        """All or nothing. A group that is sent again, because its answer was lost, is taken as it is."""
        known = [record for record in records if record.seq < len(self.records)]
        if any(self.records[record.seq].hash != record.hash for record in known):
            raise ChainRefused("another event is stored at its place")
        fresh, head = records[len(known) :], self._head
        for seq, record in enumerate(fresh, start=len(self.records)):
            try:
                check_link(record, seq=seq, prev=head)
            except BrokenChain as error:
                raise ChainRefused(str(error)) from error
            head = record.hash
        self.records.extend(fresh)

    def read_trace(self, request: ReadTraceRequest) -> ReadTraceAnswer:
        self._check(request)
        page = self.records[request.after : request.after + request.limit]
        return ReadTraceAnswer(records=tuple(page), more=request.after + len(page) < len(self.records))

    def park(self, request: ParkRequest) -> ParkAnswer:
        with self._changed:
            if self.parked is not None and request.fence == self._fence:
                return ParkAnswer(parked=True)
            self._check(request)
            if self._desired != "run":
                return ParkAnswer(parked=False)
            self._refuse_open_holds()
            self.parked = request
            self.parks.append(request)
            self._live = False
            self._changed.notify_all()
            return ParkAnswer(parked=True)

    def _refuse_open_holds(self) -> None:
        journal = Journal()
        for record in self.records:
            journal.fold(record.typed())
        if journal.open:
            raise ChainRefused(f"{len(journal.open)} calls are not settled")

    def settle(self, request: SettleRequest) -> SettleAnswer:
        with self._changed:
            return self._settle(request)

    def _settle(self, request: SettleRequest) -> SettleAnswer:
        if self.result is not None and request.fence == self._fence and request.result == self.result:
            return SettleAnswer(accepted=True, receipt_id="1")
        self._check(request)
        result, ref = request.result, request.result.trace_ref
        if (ref.job_id, ref.events, ref.head) != (self.spec.job_id, len(self.records), self._head):
            raise ChainRefused("the result does not stand at the end of the trace")
        if (result.job_id, result.attempt) != (self.spec.job_id, self._fence):
            raise ChainRefused("the result is of another job or attempt")
        if result.structured_output is not None and not shape_of(self.spec.output_schema).fits(
            result.structured_output
        ):
            raise ChainRefused("the output does not fit the job's schema")
        self.result = result
        self._live = False
        return SettleAnswer(accepted=True, receipt_id="1")
