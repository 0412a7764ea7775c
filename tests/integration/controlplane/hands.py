"""A worker in miniature and a request with defaults: what the control plane is driven with in tests."""

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from controlplane.domain.commands import JobRequest
from rlm_worker.contracts import Budget, JobResult, Usage
from rlm_worker.contracts.gateway import (
    Claimed,
    ClaimRequest,
    Gateway,
    GatewayRefused,
    NotClaimed,
    ReadTraceRequest,
    RecordAnswer,
    RecordRequest,
    SettleAnswer,
    SettleRequest,
)
from rlm_worker.contracts.job import PlaybookDriver
from rlm_worker.contracts.result import TraceRef
from rlm_worker.contracts.signature import fields_schema
from rlm_worker.contracts.trace import (
    GENESIS,
    AttemptStarted,
    CellProposed,
    Hold,
    Spend,
    SubcallFinished,
    SubcallLost,
    SubcallStarted,
    TraceEvent,
    TraceRecord,
    link,
)

KEY = "a" * 64


def a_request(**fields: Any) -> JobRequest:
    given: dict[str, Any] = {
        "task": "What is in the evidence?",
        "output_schema": fields_schema("answer: str"),
        "budget": Budget(max_subcalls=10),
        "driver": PlaybookDriver(name="test", source="SUBMIT(answer='x')"),
        # On loopback: its calls are free, so that a limit in money can be set.
        "sub_model": "http://127.0.0.1:9/v1#nobody",
    }
    return JobRequest(**{**given, **fields})


def asked(ordinal: int, **hold: Any) -> SubcallStarted:
    given = {"subcalls": 1, "input_tokens": 100, "output_tokens": 50, **hold}
    return SubcallStarted(
        iteration=0, ordinal=ordinal, key=KEY, model="m", signature="a -> b", inputs={}, hold=Hold(**given)
    )


def answered(ordinal: int, **spend: Any) -> SubcallFinished:
    given = {"input_tokens": 80, "output_tokens": 10, **spend}
    return SubcallFinished(iteration=0, ordinal=ordinal, key=KEY, model="m", ok=True, spend=Spend(**given))


def _total(costs: list[Decimal | None]) -> Decimal | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known, Decimal(0)) if len(known) == len(costs) else None


@dataclass
class Hands:
    """Works on one job through a gateway, as a worker would."""

    gateway: Gateway
    job_id: str
    generation: int = 1
    worker_id: str = "elsewhere/b/1/1"
    claimed: Claimed | None = None
    records: list[TraceRecord] = field(default_factory=list)
    events: int = 0
    head: str = GENESIS

    def claim(self) -> "Claimed | NotClaimed":
        answer = self.gateway.claim(
            ClaimRequest(worker_id=self.worker_id, job_id=self.job_id, generation=self.generation)
        )
        if isinstance(answer, Claimed):
            self.claimed, self.events, self.head = answer, answer.trace_events, answer.trace_head
        return answer

    @property
    def fence(self) -> int:
        assert self.claimed is not None
        return self.claimed.lease.fence

    def links(self, *events: TraceEvent) -> tuple[TraceRecord, ...]:
        made: list[TraceRecord] = []
        seq, prev = self.events, self.head
        for event in events:
            made.append(link(event, seq=seq, at_ms=1, prev=prev))
            seq, prev = seq + 1, made[-1].hash
        return tuple(made)

    def record(self, *events: TraceEvent) -> RecordAnswer:
        made = self.links(*events)
        answer = self.gateway.record(RecordRequest(job_id=self.job_id, fence=self.fence, records=made))
        self.events, self.head = answer.events, answer.head
        return answer

    def result(self, **fields: Any) -> JobResult:
        assert self.claimed is not None
        given: dict[str, Any] = {
            "job_id": self.job_id,
            "attempt": self.claimed.lease.attempt,
            "status": "succeeded",
            "structured_output": {"answer": "x"},
            "answered_by": "submit",
            "usage": self.usage(),
            "trace_ref": TraceRef(job_id=self.job_id, events=self.events, head=self.head),
        }
        return JobResult(**{**given, **fields})

    def usage(self) -> Usage:
        """The sum over the subcalls in the trace, answered or lost; nothing when it may no longer be read."""
        try:
            page = self.gateway.read_trace(
                ReadTraceRequest(job_id=self.job_id, fence=self.fence, after=0, limit=1_000)
            )
        except GatewayRefused:
            return Usage()
        events = [record.typed() for record in page.records]
        spends: list[Spend | Hold] = [event.spend for event in events if isinstance(event, SubcallFinished)]
        spends += [event.charged for event in events if isinstance(event, SubcallLost)]
        return Usage(
            subcalls=len(spends),
            input_tokens=sum(spend.input_tokens for spend in spends),
            output_tokens=sum(spend.output_tokens for spend in spends),
            cost_usd=_total([spend.cost_usd for spend in spends]),
        )

    def settle(self, **fields: Any) -> SettleAnswer:
        return self.gateway.settle(
            SettleRequest(job_id=self.job_id, fence=self.fence, result=self.result(**fields))
        )

    def work(self) -> None:
        """A short whole attempt: start, one cell, one subcall, settle."""
        if isinstance(self.claim(), NotClaimed):
            return
        assert self.claimed is not None
        first = self.claimed.trace_events
        self.record(AttemptStarted(attempt=self.claimed.lease.attempt, worker_id=self.worker_id))
        self.record(CellProposed(iteration=0, driver="playbook", code="predict()"), asked(first))
        self.record(answered(first))
        self.settle()
