"""A small job and its trace, made from the contracts themselves: what the rendering tests look at."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from controlplane.views import JobView, StopView
from rlm_worker.contracts.job import Budget, EvidenceRef, JobSpec, ModelDriver, PlaybookDriver
from rlm_worker.contracts.result import CitationReport, JobResult, ModelUsage, TraceRef, Usage
from rlm_worker.contracts.signature import fields_schema
from rlm_worker.contracts.trace import (
    GENESIS,
    AttemptEnded,
    AttemptStarted,
    CellFinished,
    CellProposed,
    Hold,
    SandboxOpened,
    Spend,
    SubcallFinished,
    SubcallStarted,
    SubmitAccepted,
    TraceEvent,
    TraceRecord,
    link,
)

START = datetime(2026, 11, 18, 8, 0, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)
KEY = "a" * 64

SPEC = JobSpec(
    job_id="job-1",
    tenant_id="local",
    task_id="task-1",
    step_id="step-1",
    task="Which comments admit a bug?",
    input_artifacts=(
        EvidenceRef(
            name="stdlib", kind="tree", location="x", manifest_digest=KEY, files=3, size_bytes=10_000
        ),
    ),
    output_schema=fields_schema("kinds: list[dict[str, Any]], total: int"),
    budget=Budget(
        max_iterations=10,
        max_subcalls=40,
        max_tokens=20_000,
        max_cost_usd=Decimal("0.50"),
        max_wall_time_ms=60_000,
    ),
    driver=PlaybookDriver(name="audit_comments", source="# %% find\npass"),
    sub_model="embedded",
)

EVENTS: tuple[TraceEvent, ...] = (
    AttemptStarted(attempt=1, worker_id="w1"),
    SandboxOpened(backend="namespaces", layers=("user", "net", "seccomp")),
    CellProposed(
        iteration=1, driver="playbook", reasoning="Find the comments", code="hits = evidence.search('BUG')"
    ),
    SubcallStarted(
        iteration=1,
        ordinal=0,
        key=KEY,
        model="embedded",
        signature="line -> kind",
        inputs={"line": "# BUG \x1b[31m"},
        hold=Hold(subcalls=1),
    ),
    SubcallFinished(
        iteration=1,
        ordinal=0,
        key=KEY,
        model="embedded",
        ok=True,
        value={"kind": "bug"},
        probability=0.93,
        spend=Spend(input_tokens=120, output_tokens=4),
        duration_ms=650,
    ),
    CellFinished(
        iteration=1,
        outcome="ok",
        stdout="1 hit\x1b]0;owned\x07\n",
        stderr="",
        stdout_bytes=14,
        stderr_bytes=0,
        cpu_ms=31,
        digest=KEY,
    ),
    CellProposed(iteration=2, driver="playbook", reasoning="Submit", code="SUBMIT(kinds=rows, total=1)"),
    SubmitAccepted(iteration=2, fields={"kinds": [{"kind": "bug", "count": 1}], "total": 1}),
    CellFinished(
        iteration=2,
        outcome="ended",
        stdout="",
        stderr="",
        stdout_bytes=0,
        stderr_bytes=0,
        cpu_ms=2,
        digest=KEY,
    ),
    AttemptEnded(attempt=1, status="succeeded", answered_by="submit"),
)


def chain(events: Sequence[TraceEvent] = EVENTS, *, step_ms: int = 100) -> list[TraceRecord]:
    records: list[TraceRecord] = []
    head = GENESIS
    for seq, event in enumerate(events):
        record = link(event, seq=seq, at_ms=START_MS + seq * step_ms, prev=head)
        records.append(record)
        head = record.hash
    return records


USAGE = Usage(
    iterations=2,
    subcalls=1,
    wall_time_ms=900,
    input_tokens=120,
    output_tokens=4,
    by_model={"embedded": ModelUsage(calls=1, input_tokens=120, output_tokens=4)},
)


def result(**changes: object) -> JobResult:
    fields: dict[str, object] = {
        "job_id": "job-1",
        "attempt": 1,
        "status": "succeeded",
        "structured_output": {"kinds": [{"kind": "bug", "count": 1, "where": "stdlib/ast.py:7"}], "total": 1},
        "answered_by": "submit",
        "trace_ref": TraceRef(job_id="job-1", events=len(EVENTS), head=KEY),
        "usage": USAGE,
        "citations": CitationReport(checked=12, verified=12),
        "models": {"predict": "embedded:qwen2.5-coder-1.5b"},
    }
    return JobResult.model_validate(fields | changes)


def job(**changes: object) -> JobView:
    fields: dict[str, object] = {
        "job_id": "job-1",
        "task_id": "task-1",
        "tenant_id": "local",
        "state": "succeeded",
        "desired": "run",
        "generation": 1,
        "attempts": 1,
        "created_at": START,
        "updated_at": START + timedelta(seconds=1),
        "spec": SPEC,
        "usage": USAGE,
        "trace_events": len(EVENTS),
        "trace_head": KEY,
        "result": result(),
        "receipt_id": "rc-1",
    }
    return JobView(**(fields | changes))  # type: ignore[arg-type]


def by_model(model: str) -> JobSpec:
    return SPEC.model_copy(update={"driver": ModelDriver(model=model)})


STOPPED = StopView(
    order="stop",
    requested_at=START,
    observed_at=START + timedelta(milliseconds=12),
    verified_at=START + timedelta(milliseconds=87),
)
