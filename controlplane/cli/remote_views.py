"""Bodies of the API as the views that commands print, and requests of commands as bodies. Pure."""

from typing import Any

from controlplane.api.bodies import (
    Collect,
    EvidenceUse,
    JobBody,
    JobItem,
    QuestionBody,
    SandboxWish,
    SubmitRequest,
    Text,
    TraceItem,
    Withheld,
)
from controlplane.cli.exits import Refusal
from controlplane.custodian import SERVERS_CHOICE, JobLine
from controlplane.domain.commands import JobRequest
from controlplane.views import JobView, LeaseView, QuestionView, StopView
from rlm_worker.contracts import JobResult, JobSpec, TraceRecord
from rlm_worker.contracts.job import ModelDriver, RecordingDriver, SandboxPolicy


def shown(text: Text) -> str:
    """A text, or in words that it was withheld."""
    return f"({text.length_bytes} bytes withheld)" if isinstance(text, Withheld) else text


def unveiled(value: Any) -> Any:
    """JSON in which words stand where texts were withheld."""
    if isinstance(value, dict):
        if value.get("withheld") is True and set(value) == {"withheld", "length_bytes", "sha256"}:
            return f"({value['length_bytes']} bytes withheld)"
        return {name: unveiled(part) for name, part in value.items()}
    return [unveiled(part) for part in value] if isinstance(value, list) else value


def job_view(body: JobBody) -> JobView:
    lease, stop = body.lease, body.stop
    return JobView(
        job_id=body.job_id,
        task_id=body.task_id,
        tenant_id=body.tenant_id,
        state=body.state,
        desired=body.desired,
        generation=body.generation,
        attempts=body.attempts,
        created_at=body.created_at,
        updated_at=body.updated_at,
        spec=_spec(body.spec),
        usage=body.usage,
        trace_events=body.trace_events,
        trace_head=body.trace_head,
        lease=None if lease is None else LeaseView(fence=0, **lease.model_dump()),
        stop=None if stop is None else StopView(**stop.model_dump()),
        result=None if body.result is None else _result(body.result),
        receipt_id=body.receipt_id,
        waiting_for=shown(body.waiting_for),
        forks=body.forks,
        parked_for=body.parked_for,
        not_before=body.not_before,
    )


def _spec(given: dict[str, Any]) -> JobSpec:
    """The spec. Where its evidence lies on the server is not told, and nobody here needs it."""
    body = unveiled(given)
    body["input_artifacts"] = [{"location": "", **ref} for ref in body.get("input_artifacts", [])]
    for name in ("output_schema", "params"):
        if not isinstance(body.get(name), dict):
            body[name] = {"type": "object", "properties": {"withheld": {}}} if name == "output_schema" else {}
    return JobSpec.model_validate(body)


def _result(given: dict[str, Any]) -> JobResult:
    body = unveiled(given)
    answer = body.get("structured_output")
    if isinstance(answer, str):
        body["structured_output"] = {"answer": answer}
    return JobResult.model_validate(body)


def line_view(item: JobItem) -> JobLine:
    return JobLine(
        job_id=item.job_id,
        state=item.state,
        question=shown(item.task),
        created_at=item.created_at,
        driver=f"model {item.model}" if item.model else "playbook",
        subcalls=item.usage.subcalls,
        tokens=item.usage.tokens,
        cost_usd=item.usage.cost_usd,
    )


def question_view(job_id: str, body: QuestionBody) -> QuestionView:
    schema = unveiled(body.answer_schema)
    return QuestionView(
        job_id=job_id,
        question=body.question,
        text=shown(body.text),
        schema=schema if isinstance(schema, dict) else {},
        asked_at=body.asked_at,
        until=body.until,
        is_answered=body.is_answered,
    )


def record_of(item: TraceItem) -> TraceRecord:
    at_ms = round(item.at.timestamp() * 1000)
    return TraceRecord(seq=item.seq, at_ms=at_ms, event=unveiled(item.event), prev=item.prev, hash=item.hash)


def request_of(request: JobRequest) -> SubmitRequest:
    """What a command would submit here, as it is submitted there. Which sandbox it is, that server says."""
    if isinstance(request.driver, RecordingDriver):
        raise Refusal(
            "a recording is run again where its job is: leave out --server, or use --playbook or --model."
        )
    is_theirs = isinstance(request.driver, ModelDriver) and request.driver.model == SERVERS_CHOICE
    driver = None if is_theirs else request.driver
    policy, usual = request.sandbox_policy, SandboxPolicy()
    wish = SandboxWish(
        language="strict" if policy.language == "strict" else None,
        cell_seconds=None if policy.cell_seconds == usual.cell_seconds else policy.cell_seconds,
    )
    return SubmitRequest(
        task=request.task,
        output_schema=request.output_schema,
        budget=request.budget,
        driver=driver,
        sub_model=None if request.sub_model == SERVERS_CHOICE else request.sub_model,
        evidence=tuple(EvidenceUse(digest=ref.manifest_digest) for ref in request.input_artifacts),
        params=request.params,
        sandbox=wish,
        network=request.network_policy.allow,
        artifacts=Collect(**request.artifact_policy.model_dump()),
        labels=request.labels,
    )
