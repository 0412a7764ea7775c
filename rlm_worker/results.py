"""From an ending to the JobResult: the same cause always gives the same class."""

from typing import TypedDict

from rlm_worker.contracts import JobResult, JobSpec, JsonObject
from rlm_worker.contracts.job import Dimension, ModelDriver
from rlm_worker.contracts.result import (
    AnsweredBy,
    CitationReport,
    FailureClass,
    Proposal,
    Status,
    TraceRef,
    Usage,
)
from rlm_worker.contracts.trace import AttemptEnded
from rlm_worker.endings import Ending, Exhausted, Extracted, Failed, Stopped, Submitted, Waits
from rlm_worker.journal import Journal
from rlm_worker.prompts import clip

_SUMMARY_CHARS = 2_000


class Verdict(TypedDict):
    """The part of a result that depends on how the job ended."""

    status: Status
    structured_output: JsonObject | None
    answered_by: AnsweredBy
    failure_class: FailureClass | None
    message: str


def verdict(ending: Ending, *, draft: JsonObject | None) -> Verdict:  # noqa: PLR0911 - a table: one line an ending
    """Status, answer and class. A draft makes a usable answer of what would be none."""
    match ending:
        case Submitted(fields):
            return _verdict("succeeded", fields, "submit", None, "")
        case Stopped(fields=fields) if fields is not None:
            return _verdict("stopped", fields, "submit", "stopped", ending.message)
        case Stopped():
            return _verdict(
                "stopped", draft, "draft" if draft is not None else "nobody", "stopped", ending.message
            )
        case Exhausted(fields=fields) if fields is not None:
            return _verdict("partial", fields, "submit", "partial_success", ending.message)
        case Extracted(fields):
            return _verdict("partial", fields, "extracted", "partial_success", ending.message)
        case Waits():
            raise AssertionError("a job that waits is parked, not settled")
        case Exhausted() | Failed() if draft is not None:
            return _verdict("partial", draft, "draft", "partial_success", ending.message)
        case Exhausted():
            return _verdict("failed", None, "nobody", "budget_exhausted", ending.message)
        case Failed(failure_class, message):
            return _verdict("failed", None, "nobody", failure_class, message)


def _verdict(
    status: Status,
    output: JsonObject | None,
    answered_by: AnsweredBy,
    failure_class: FailureClass | None,
    message: str,
) -> Verdict:
    return Verdict(
        status=status,
        structured_output=output,
        answered_by=answered_by,
        failure_class=failure_class,
        message=message,
    )


def attempt_ended(said: Verdict, *, attempt: int) -> AttemptEnded:
    return AttemptEnded(
        attempt=attempt,
        status=said["status"],
        answered_by=said["answered_by"],
        failure_class=said["failure_class"],
        message=said["message"],
    )


def job_result(
    said: Verdict,
    *,
    spec: JobSpec,
    attempt: int,
    ending: Ending,
    journal: Journal,
    usage: Usage,
    trace_ref: TraceRef,
) -> JobResult:
    """The whole result, with a bounded look at what the cells printed."""
    models = {"predict": spec.sub_model}
    if isinstance(spec.driver, ModelDriver):
        models["root"] = spec.driver.model
    return JobResult(
        job_id=spec.job_id,
        attempt=attempt,
        trace_ref=trace_ref,
        usage=usage,
        limit=_limit_of(ending),
        artifact_refs=() if journal.collected is None else journal.collected.artifacts,
        proposals=tuple[Proposal, ...](journal.proposals),
        models=models,
        stdout_summary=clip(journal.stdout_tail, _SUMMARY_CHARS),
        stderr_summary=clip(journal.stderr_tail, _SUMMARY_CHARS),
        **said,
    )


def _limit_of(ending: Ending) -> Dimension | None:
    if isinstance(ending, Extracted):
        return ending.cause.dimension
    return ending.dimension if isinstance(ending, Exhausted) else None


def with_citations(result: JobResult, report: CitationReport) -> JobResult:
    return result.model_copy(update={"citations": report})
