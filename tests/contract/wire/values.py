"""The values behind the golden files, every field set; run as a module with a name to write a file that is not there."""

import json
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from pydantic import TypeAdapter

from rlm_worker.contracts import keeping, limits
from rlm_worker.contracts import trace as t
from rlm_worker.contracts.base import Contract
from rlm_worker.contracts.gateway import (
    AwaitOrdersRequest,
    Claimed,
    ClaimRequest,
    Lease,
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
    WakeUp,
)
from rlm_worker.contracts.job import (
    ArtifactPolicy,
    Budget,
    EvidenceRef,
    ForkPoint,
    JobSpec,
    ModelDriver,
    NetworkPolicy,
    PlaybookDriver,
    Reading,
    RecordingDriver,
    SandboxPolicy,
)
from rlm_worker.contracts.remote import (
    EvidenceAnswer,
    EvidenceFile,
    EvidenceRequest,
    FilesRequest,
    HandBackAnswer,
    HandBackRequest,
    HelloAnswer,
    HelloRequest,
    KeptAnswer,
    WaitAnswer,
    WaitRequest,
)
from rlm_worker.contracts.result import (
    ArtifactRef,
    CitationReport,
    JobResult,
    ModelUsage,
    Proposal,
    TraceRef,
    Usage,
)
from rlm_worker.contracts.signature import fields_schema

FOLDER = Path(__file__).parent
A, B, C = "a" * 64, "b" * 64, "c" * 64
HOLD = t.Hold(subcalls=1, input_tokens=120, output_tokens=96, cost_usd=Decimal("0.00123"))
SPEND = t.Spend(input_tokens=101, output_tokens=7, cached_input_tokens=64, cost_usd=Decimal("0.00045"))

SPEC = JobSpec(
    job_id="job-1",
    tenant_id="local",
    task_id="task-1",
    step_id="step-1",
    parent_job_id="job-0",
    depth=1,
    task="Which comments admit a bug? «é»",
    input_artifacts=(
        EvidenceRef(
            name="src",
            kind="tree",
            location="/evidence/src",
            manifest_digest=A,
            files=3,
            size_bytes=4_000,
            trust="untrusted",
            origin="git /src at 1234",
            reading=Reading(location="/readings/b", digest=B),
        ),
    ),
    params={"limit": 24, "deep": {"list": [1, 2.5, None, True]}},
    allowed_tools=("lookup",),
    output_schema=fields_schema("summary: str, where: list[Citation]"),
    budget=Budget(
        max_iterations=9,
        max_subcalls=60,
        max_depth=2,
        max_wall_time_ms=90_000,
        max_tokens=200_000,
        max_input_tokens=150_000,
        max_output_tokens=50_000,
        max_cost_usd=Decimal("0.50"),
        max_host_calls=100,
        max_output_bytes=1_000_000,
        max_sandbox_cpu_ms=60_000,
        max_sandbox_memory_bytes=500_000_000,
        closing_reserve=0.1,
    ),
    sandbox_policy=SandboxPolicy(
        backend="namespaces",
        runtime="runc",
        language="open",
        cell_seconds=30.0,
        memory_bytes=400_000_000,
        processes=32,
        workspace_bytes=1_000_000,
        required_layers=("seccomp",),
        guest_paths=("/opt/guest",),
    ),
    network_policy=NetworkPolicy(allow=()),
    artifact_policy=ArtifactPolicy(collect=("*.csv",), max_files=5, max_bytes=1_000),
    driver=ModelDriver(model="openai:gpt-x"),
    sub_model="embedded:qwen",
    labels={"team": "audit"},
    fork=ForkPoint(job_id="job-0", at=4, seed_job_id="job-0"),
    on_limit="ask",
)

RESULT = JobResult(
    job_id="job-1",
    attempt=2,
    status="partial",
    structured_output={"summary": "some", "where": ["src/a.py:3"]},
    answered_by="draft",
    failure_class="partial_success",
    limit="tokens",
    message="budget tokens is exhausted: limit 10, used or held 11",
    trace_ref=TraceRef(job_id="job-1", events=42, head=B),
    artifact_refs=(ArtifactRef(path="out.csv", digest=C, size_bytes=12),),
    usage=Usage(
        iterations=3,
        subcalls=4,
        answered_from_journal=1,
        host_calls=2,
        depth=1,
        wall_time_ms=1_234,
        input_tokens=101,
        output_tokens=7,
        cost_usd=Decimal("0.00045"),
        output_bytes=99,
        sandbox_cpu_ms=50,
        sandbox_memory_bytes=1_000_000,
        rollovers=2,
        by_model={
            "embedded:qwen": ModelUsage(
                calls=4,
                input_tokens=101,
                output_tokens=7,
                cached_input_tokens=64,
                cost_usd=Decimal("0.00045"),
            )
        },
    ),
    citations=CitationReport(
        checked=2,
        verified=1,
        missing=("src/b.py:9",),
        quotes_checked=2,
        quotes_verified=1,
        misquoted=("src/a.py:1",),
    ),
    proposals=(Proposal(kind="note", body={"kind": "discovery", "text": "x"}, trust="untrusted"),),
    models={"predict": "embedded:qwen", "root": "openai:gpt-x"},
    stdout_summary="out",
    stderr_summary="err",
    trust="trusted",
)

_CALL = {"node": "child.3", "iteration": 2, "ordinal": 7}
EVENTS: tuple[t.TraceEvent, ...] = (
    t.AttemptStarted(
        attempt=2, worker_id="w1", resumed_iterations=3, versions={"custody": "0.1.0"}, spec_digest=A
    ),
    t.SandboxOpened(backend="namespaces", layers=("pid-ns", "seccomp"), reason="resume"),
    t.EvidenceSealed(name="src", content_digest=A, changed=True),
    t.ModelAsked(**_CALL, model="openai:gpt-x", prompt_digest=B, hold=HOLD, temperature=0.6, top_p=0.95),
    t.ModelAnswered(
        **_CALL, model="openai:gpt-x", text="```python\nx\n```", spend=SPEND, ok=False, error="cut"
    ),
    t.CellProposed(node="child.3", iteration=2, driver="model", reasoning="Look.", code="x = 'é'\n"),
    t.CellRejected(node="child.3", iteration=2, reason="no code"),
    t.CellFinished(
        node="child.3",
        iteration=2,
        outcome="error",
        stdout="out",
        stderr="err",
        stdout_bytes=3,
        stderr_bytes=3,
        error_type="KeyError",
        error_message="'x'",
        error_line=4,
        traceback="Traceback",
        state_lost=True,
        cpu_ms=12,
        memory_bytes=1_000,
        digest=C,
        variables={"rows": "65abe9211b46", "gone": ""},
    ),
    keeping.ClockRead(node="child.3", iteration=2, read=(1_700_000_000_000_000_000, 1, 512, 3)),
    t.SubcallStarted(
        **_CALL,
        key=A,
        model="embedded:qwen",
        signature="t -> n: int",
        inputs={"t": "x", "deep": [1, {"y": None}]},
        instructions="Count.",
        hold=HOLD,
        cut_pages=(B,),
    ),
    t.SubcallFinished(
        **_CALL,
        key=A,
        model="embedded:qwen",
        ok=True,
        value={"n": 3},
        probability=0.875,
        error_class="InvalidAnswer",
        error="said for the file's sake",
        requests=2,
        spend=SPEND,
        duration_ms=21,
    ),
    t.SubcallLost(node="child.3", ordinal=7, key=A, charged=HOLD),
    t.ChildStarted(**_CALL, key=A, child_id="child.7", task="Look deeper", request={"budget": {"tokens": 5}}),
    t.ChildFinished(**_CALL, key=A, child_id="child.7", ok=True, value={"n": 1}, error="none"),
    t.HostCallFinished(
        **_CALL,
        name="budget",
        payload_digest=B,
        request={"method": "GET", "url": "https://example.org/"},
        answer={"subcalls": 3},
        ok=False,
        error="no",
    ),
    t.PolicyDenied(node="child.3", iteration=2, what="tool:mail", reason="not declared"),
    t.DraftRecorded(node="child.3", iteration=2, fields={"answer": "so far"}),
    t.ProposalMade(iteration=2, proposal=Proposal(kind="effect", body={"x": 1}, trust="trusted")),
    t.SubmitRejected(iteration=2, fields={"answer": 7}, errors=("answer: 7 is not of type string",)),
    t.SubmitAccepted(iteration=2, fields={"answer": "42"}),
    t.BudgetExhausted(dimension="tokens", limit="10", spent="11", detail="closing"),
    t.NoProgress(
        iteration=2,
        detail="3 identical failing cells",
        finding="empty_turns",
        action="steered",
        iterations=(1, 2),
    ),
    t.RolledOver(
        iteration=9,
        number=2,
        covers_to=7,
        brief="What was done",
        brief_digest=A,
        left_out_digest=B,
        tokens_before=90_000,
        tokens_after=4_000,
        trace_events=77,
        reason="did_not_fit",
    ),
    t.SteerObserved(iteration=2, steer_id=4, text="only 2024"),
    t.StopObserved(order="kill", detail="enough", waited_ms=4),
    limits.Retuned(
        node="child.3",
        version=2,
        budget=Budget(max_subcalls=400, max_tokens=90_000),
        by="ada",
        reason="the answer is near",
    ),
    t.StopVerified(kill_ms=18, survivors=(12,)),
    keeping.Diverged(iteration=2, expected=A, got=B, detail="stdout differs"),
    t.ArtifactsCollected(
        artifacts=(ArtifactRef(path="out/a.csv", digest=A, size_bytes=7),),
        skipped=("huge: it holds too many bytes",),
        skipped_total=3,
    ),
    keeping.Forked(
        source_job_id="job-0",
        at=4,
        source_events=31,
        source_head=A,
        inherited=29,
        iterations=4,
        subcalls=6,
        input_tokens=101,
        output_tokens=7,
        cost_usd=Decimal("0.00045"),
    ),
    keeping.QuestionAsked(
        **_CALL, key=A, question="Which year?", answer_schema={"type": "integer"}, until_ms=1_700_000_000_000
    ),
    keeping.QuestionAnswered(
        **_CALL, key=A, ok=True, value=2024, by="ada", answered_ms=1_700_000_000_001, error="none"
    ),
    t.AttemptEnded(
        attempt=2, status="failed", answered_by="nobody", failure_class="model_error", message="no route"
    ),
    limits.ModelPriced(
        model="openai:gpt-4o-mini",
        source="genai-prices",
        version="0.2.2",
        provider="openai",
        listed_as="gpt-4o-mini",
        input_usd=Decimal("0.15"),
        output_usd=Decimal("0.6"),
        cached_input_usd=Decimal("0.075"),
        row="$0.15/input MTok, $0.6/output MTok",
    ),
    limits.AnswerExtracted(iteration=4, fields={"answer": "é"}),
    limits.PromptShortened(node="child.3", iteration=4, characters=90_000, kept_characters=44_000),
    limits.Parked(
        node="child.3",
        reason="rate_limited",
        detail="m: too many requests",
        not_before=datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC),
    ),
)
RETUNE = Retune(version=2, budget=Budget(max_subcalls=400), by="ada", reason="the answer is near")
RECORDS = (
    t.link(EVENTS[0], seq=0, at_ms=1_700_000_000_000, prev=t.GENESIS),
    t.link(
        EVENTS[10],
        seq=1,
        at_ms=1_700_000_000_001,
        prev=t.link(EVENTS[0], seq=0, at_ms=1_700_000_000_000, prev=t.GENESIS).hash,
    ),
)
LEASE = Lease(job_id="job-1", attempt=2, fence=3, ttl_ms=15_000)

OTHERS: dict[str, Contract] = {
    "job_spec": SPEC,
    "driver.playbook": PlaybookDriver(name="audit", source="# %%\nx = 1\n"),
    "driver.recording": RecordingDriver(job_id="job-0", cells=("x = 1\n",)),
    "job_result": RESULT,
    "trace_record": RECORDS[0],
    "gateway.wake_up": WakeUp(job_id="job-1", generation=4),
    "gateway.claim_request": ClaimRequest(worker_id="w1", job_id="job-1", generation=4),
    "gateway.claimed": Claimed(
        spec=SPEC,
        lease=LEASE,
        trace_events=2,
        trace_head=RECORDS[1].hash,
        spent_wall_time_ms=900,
        answers=(PersonAnswer(question=7, value={"year": 2024}, by="ada", answered_ms=1_700_000_000_000),),
        retune=RETUNE,
    ),
    "gateway.not_claimed": NotClaimed(reason="leased", detail="fence 2"),
    "gateway.renew_request": RenewRequest(job_id="job-1", fence=3, steer_seen=1, budget_seen=1),
    "gateway.renew_answer": RenewAnswer(
        desired="stop",
        reason="enough",
        steers=(Steer(steer_id=2, text="hurry"),),
        ttl_ms=15_000,
        retune=RETUNE,
    ),
    "gateway.record_request": RecordRequest(job_id="job-1", fence=3, records=RECORDS),
    "gateway.record_answer": RecordAnswer(events=2, head=RECORDS[1].hash),
    "gateway.settle_request": SettleRequest(job_id="job-1", fence=3, result=RESULT),
    "gateway.settle_answer": SettleAnswer(accepted=True, receipt_id="receipt-1"),
    "gateway.park_request": ParkRequest(
        job_id="job-1",
        fence=3,
        reason="rate_limited",
        detail="m: too many requests",
        not_before=datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC),
    ),
    "gateway.park_answer": ParkAnswer(parked=True),
    "gateway.read_trace_request": ReadTraceRequest(job_id="job-1", fence=3, after=10, limit=100),
    "gateway.read_trace_answer": ReadTraceAnswer(records=RECORDS, more=True),
    "gateway.await_orders_request": AwaitOrdersRequest(
        job_id="job-1", fence=3, seen="pause", steer_seen=1, budget_seen=1, timeout_ms=500
    ),
}
REMOTE: dict[str, Contract] = {
    "remote.hello_request": HelloRequest(
        protocols=(1, 2),
        name="host/77/0123456789abcdef",
        host="host",
        slots=4,
        asks=False,
        image="custody-worker:7",
        versions={"custody": "0.1.0"},
    ),
    "remote.hello_answer": HelloAnswer(
        protocol=1,
        worker_id="0011223344556677/host/77/0123456789abcdef",
        server={"custody": "0.1.0"},
        lease_ttl_ms=15_000,
        max_request_bytes=67_108_864,
        is_draining=True,
    ),
    "remote.wait_request": WaitRequest(worker_id="k/host/77/0", free=2, timeout_ms=5_000),
    "remote.wait_answer": WaitAnswer(jobs=(WakeUp(job_id="job-1", generation=2),), is_draining=True),
    "remote.hand_back_request": HandBackRequest(worker_id="k/host/77/0"),
    "remote.hand_back_answer": HandBackAnswer(jobs=2),
    "remote.evidence_request": EvidenceRequest(
        job_id="job-1", fence=3, name="src", part="reading", after=1_000
    ),
    "remote.evidence_answer": EvidenceAnswer(
        files=(
            EvidenceFile(
                path="a/é.txt", size_bytes=3, changed_ns=1_700_000_000_000_000_001, digest=A, unreadable=13
            ),
        ),
        more=True,
        manifest={"kind": "tree", "entries": [["a/é.txt", 3, 1_700_000_000_000_000_001, 33_188]]},
    ),
    "remote.files_request": FilesRequest(
        job_id="job-1", fence=3, name="src", part="reading", numbers=(0, 7), offset=8_388_608
    ),
    "remote.kept_answer": KeptAnswer(received_bytes=8_388_608, is_kept=True),
}
OTHERS |= REMOTE
VALUES: dict[str, Contract] = {**OTHERS, **{f"event.{event.kind}": event for event in EVENTS}}
EVENT: TypeAdapter[t.TraceEvent] = TypeAdapter(t.TraceEvent)


def encoded(value: Contract) -> bytes:
    """The bytes of a golden file: the wire's own JSON, laid out for people."""
    return (json.dumps(json.loads(value.model_dump_json()), indent=2, ensure_ascii=False) + "\n").encode()


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.json"


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        with path_of(wanted).open("xb") as new:
            new.write(encoded(VALUES[wanted]))
