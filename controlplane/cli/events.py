"""One trace event as text: the summary line that pipes and the live tail share, and the block that `trace` prints."""

import json
from collections.abc import Callable
from typing import Any

from controlplane.cli.figures import count, duration, money
from controlplane.cli.progress import cell_name
from controlplane.cli.safe import clipped, one_line
from rlm_worker.contracts import keeping, limits
from rlm_worker.contracts import trace as t
from rlm_worker.contracts.base import Event
from rlm_worker.contracts.trace import TraceRecord

_VALUE_WIDTH = 110
#: A cell of more lines than this is shown whole only where a trace is asked for as JSON.
_CODE_LINES = 10_000


def summary(record: TraceRecord) -> str:
    """One line for one event; an event this version does not know is named by its kind."""
    try:
        event = record.typed()
    except ValueError:
        return f"{record.kind} (an event this version does not know)"
    line = _SUMMARIES[type(event)](event)
    return f"[{one_line(event.node, width=20)}] {line}" if event.node else line


def code_of(record: TraceRecord) -> str:
    """The code of a proposed cell, made safe to print; empty for other events."""
    code = record.event.get("code")
    return (
        clipped(code, lines=_CODE_LINES) if record.kind == "cell_proposed" and isinstance(code, str) else ""
    )


def observation_of(record: TraceRecord, *, lines: int) -> str:
    """What a cell printed and how it failed, cut to some lines; empty for other events."""
    if record.kind != "cell_finished":
        return ""
    parts = [str(record.event.get(name) or "") for name in ("stdout", "stderr", "traceback")]
    text = "\n".join(part.rstrip("\n") for part in parts if part.strip())
    return clipped(text, lines=lines) if text else ""


def value_text(value: Any, *, width: int = _VALUE_WIDTH) -> str:
    """A JSON value on one line."""
    return one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), width=width)


def _spend(spend: t.Spend) -> str:
    tokens = f"{count(spend.input_tokens)} in, {count(spend.output_tokens)} out"
    return tokens if spend.cost_usd == 0 else f"{tokens}, {money(spend.cost_usd)}"


def _attempt_started(event: t.AttemptStarted) -> str:
    took = f", {event.resumed_iterations} iterations from the journal" if event.resumed_iterations else ""
    return f"attempt {event.attempt} by {one_line(event.worker_id, width=40)}{took}"


def _cell_finished(event: t.CellFinished) -> str:
    error = f": {event.error_type}: {event.error_message}" if event.error_type else ""
    lost = ", state lost" if event.state_lost else ""
    # Of a cell that was killed nobody knows it.
    cpu = f" ({duration(event.cpu_ms)} CPU)" if event.cpu_ms or not event.state_lost else ""
    return one_line(f"cell {event.iteration} {event.outcome}{lost}{cpu}{error}", width=140)


def _subcall_started(event: t.SubcallStarted) -> str:
    return (
        f"subcall {event.ordinal} → {one_line(event.model, width=50)}: {value_text(event.inputs, width=70)}"
    )


def _subcall_finished(event: t.SubcallFinished) -> str:
    sure = "" if event.probability is None else f", p {event.probability:.2f}"
    what = value_text(event.value) if event.ok else f"failed: {one_line(event.error or event.error_class)}"
    spent = f"({duration(event.duration_ms)}, {_spend(event.spend)}{sure})"
    return f"subcall {event.ordinal} ← {what} {spent}"


def _host_call(event: t.HostCallFinished) -> str:
    if event.request is not None:
        asked = one_line(f"{event.request.get('method', '')} {event.request.get('url', '')}", width=100)
        said = event.answer if isinstance(event.answer, dict) else {}
        came = f"{said.get('status')} from {one_line(str(said.get('address')), width=60)}"
        return f"{event.name} {asked} ← {came if event.ok else f'refused: {one_line(event.error)}'}"
    return f"host call {event.name}" + ("" if event.ok else f" failed: {one_line(event.error)}")


def _child_finished(event: t.ChildFinished) -> str:
    what = value_text(event.value) if event.ok else f"failed: {one_line(event.error)}"
    return f"child {event.child_id} ← {what}"


def _evidence_sealed(event: t.EvidenceSealed) -> str:
    changed = "; IT CHANGED WHILE THE JOB RAN" if event.changed else ""
    return f"evidence {one_line(event.name)} sealed as {event.content_digest[:12]}{changed}"


def _model_answered(event: t.ModelAnswered) -> str:
    if not event.ok:
        return f"{event.model} failed: {one_line(event.error)}"
    return f"{event.model} wrote iteration {event.iteration} ({_spend(event.spend)})"


def _budget_exhausted(event: t.BudgetExhausted) -> str:
    detail = f": {one_line(event.detail)}" if event.detail else ""
    return f"budget of {event.dimension} used up, {event.spent} of {event.limit}{detail}"


def _model_priced(event: limits.ModelPriced) -> str:
    by = {"free": "free", "set_by_hand": "set by hand", "unknown": "price unknown"}
    where = by.get(event.source) or f"{event.source} {event.version}, {event.provider}:{event.listed_as}"
    figures = (
        "" if not event.input_usd else f", ${event.input_usd} in, ${event.output_usd} out per million tokens"
    )
    return f"{one_line(event.model, width=50)} is charged by: {one_line(where)}{figures}"


def _retuned(event: limits.Retuned) -> str:
    why = f": {one_line(event.reason)}" if event.reason else ""
    return f"limits changed by {one_line(event.by, width=40) or 'an operator'}{why}"


def _parked(event: limits.Parked) -> str:
    until = "" if event.not_before is None else f" until {event.not_before:%Y-%m-%d %H:%M:%S %Z}"
    return f"parked{until} ({event.reason}): {one_line(event.detail)}"


def _stop_verified(event: t.StopVerified) -> str:
    left = "none" if not event.survivors else ", ".join(map(str, event.survivors))
    return f"stop verified in {duration(event.kill_ms)}, survivors: {left}"


def _attempt_ended(event: t.AttemptEnded) -> str:
    why = f" ({event.failure_class})" if event.failure_class else ""
    message = f": {one_line(event.message, width=160)}" if event.message else ""
    return f"attempt {event.attempt} ended {event.status}{why}, answered by {event.answered_by}{message}"


def _artifacts_collected(event: t.ArtifactsCollected) -> str:
    names = one_line(", ".join(ref.path for ref in event.artifacts), width=80)
    left = one_line("; ".join(event.skipped), width=80)
    kept = f"kept {len(event.artifacts)} files{f' ({names})' if names else ''}"
    return f"{kept}, left out {event.skipped_total} ({left})" if event.skipped_total else kept


def _no_progress(event: t.NoProgress) -> str:
    where = f" (iterations {', '.join(map(str, event.iterations))})" if event.iterations else ""
    return f"no progress, {event.action}: {one_line(event.detail)}{where}"


def _rolled_over(event: t.RolledOver) -> str:
    why = ", since it was longer than the model takes" if event.reason == "did_not_fit" else ""
    return (
        f"conversation {event.number + 1} begins at iteration {event.iteration}{why}: iterations 1 to {event.covers_to} are "
        f"left out of the prompt (about {count(event.tokens_before)} → {count(event.tokens_after)} tokens)"
    )


def _submit_rejected(event: t.SubmitRejected) -> str:
    return "SUBMIT rejected: " + one_line("; ".join(event.errors), width=160)


def _forked(event: keeping.Forked) -> str:
    past = f"{event.iterations} iterations, {event.subcalls} subcalls inherited"
    return f"forked from {event.source_job_id} at iteration {event.at}: {past}, not charged"


def _question_answered(event: keeping.QuestionAnswered) -> str:
    if not event.ok:
        return f"question {event.ordinal} has no answer: {one_line(event.error)}"
    return f"question {event.ordinal} answered by {one_line(event.by, width=40)}: {value_text(event.value)}"


_SUMMARIES: dict[type[Event], Callable[[Any], str]] = {
    t.AttemptStarted: _attempt_started,
    t.SandboxOpened: lambda e: f"sandbox {e.backend} ({e.reason}): {', '.join(e.layers)}",
    t.EvidenceSealed: _evidence_sealed,
    t.ModelAsked: lambda e: f"asked {one_line(e.model, width=50)} for iteration {e.iteration}",
    t.ModelAnswered: _model_answered,
    t.CellProposed: lambda e: (
        f"cell {e.iteration} by {e.driver}: {cell_name(e.code, reasoning=e.reasoning, driver=e.driver)}"
    ),
    t.CellRejected: lambda e: f"cell {e.iteration} rejected: {one_line(e.reason)}",
    t.CellFinished: _cell_finished,
    t.SubcallStarted: _subcall_started,
    t.SubcallFinished: _subcall_finished,
    t.SubcallLost: lambda e: f"subcall {e.ordinal} lost: its hold is charged",
    t.ChildStarted: lambda e: f"child {e.child_id} → {one_line(e.task)}",
    t.ChildFinished: _child_finished,
    t.HostCallFinished: _host_call,
    t.PolicyDenied: lambda e: f"denied {one_line(e.what)}: {one_line(e.reason)}",
    t.DraftRecorded: lambda e: f"DRAFT {value_text(e.fields)}",
    t.ProposalMade: lambda e: f"proposes a {e.proposal.kind}: {value_text(e.proposal.body)}",
    t.SubmitRejected: _submit_rejected,
    t.SubmitAccepted: lambda e: f"SUBMIT {value_text(e.fields)}",
    t.BudgetExhausted: _budget_exhausted,
    t.NoProgress: _no_progress,
    t.RolledOver: _rolled_over,
    t.SteerObserved: lambda e: f"steer {e.steer_id} observed: {one_line(e.text)}",
    t.StopObserved: lambda e: f"{e.order} observed{': ' + one_line(e.detail) if e.detail else ''}",
    t.StopVerified: _stop_verified,
    keeping.Diverged: lambda e: f"DIVERGED at iteration {e.iteration}: {one_line(e.detail)}",
    t.ArtifactsCollected: _artifacts_collected,
    keeping.ClockRead: lambda e: f"cell {e.iteration} read the clock {sum(e.read[1::2])} times",
    keeping.Forked: _forked,
    keeping.QuestionAsked: lambda e: f"question {e.ordinal} to a person: {one_line(e.question)}",
    keeping.QuestionAnswered: _question_answered,
    t.AttemptEnded: _attempt_ended,
    limits.Parked: _parked,
    limits.Retuned: _retuned,
    limits.ModelPriced: _model_priced,
    limits.AnswerExtracted: lambda e: f"answer extracted from the history: {value_text(e.fields)}",
    limits.PromptShortened: lambda e: (
        f"prompt of iteration {e.iteration} shortened to {count(e.kept_characters)} of {count(e.characters)} characters"
    ),
}
