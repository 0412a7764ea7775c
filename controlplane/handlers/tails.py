"""What the end of a trace shows of a job at work: errors in a row, the same code again, tokens spent too fast."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from controlplane.domain.findings import Found
from controlplane.ports import Transaction
from controlplane.ports_control import StuckRow, StuckRules
from rlm_worker.contracts import TraceRecord

_TAIL = 60
_ERRORS = 10
_SAME_CODE = 4
_ENDS = ("host_call_finished", "subcall_finished", "cell_finished")


@dataclass
class Tail:
    """A job as it was seen last."""

    events: int
    tokens: int
    at_ms: int
    found: tuple[Found, ...] = ()


def look_at_tails(tx: Transaction, known: dict[str, Tail], *, rules: StuckRules) -> list[Found]:
    """Findings about jobs at work. A trace that has not grown is not read again."""
    rows = tx.findings.at_work()
    for gone in set(known) - {row.job_id for row in rows}:
        del known[gone]
    for row in rows:
        before = known.get(row.job_id)
        if before is None or before.events != row.facts["trace_events"]:
            found = (*_in_trace(tx, row), *_spending(row, before, now_ms=tx.now_ms, rules=rules))
            known[row.job_id] = Tail(
                events=row.facts["trace_events"], tokens=row.facts["tokens"], at_ms=tx.now_ms, found=found
            )
    return [found for tail in known.values() for found in tail.found]


def _in_trace(tx: Transaction, row: StuckRow) -> Iterator[Found]:
    events: int = row.facts["trace_events"]
    records = tx.traces.read(row.job_id, after=max(0, events - _TAIL), limit=_TAIL)
    errors = _errors_in_a_row(records)
    if len(errors) >= _ERRORS:
        detail = f"the last {len(errors)} calls and cells failed, the last with: {errors[-1][:200]}"
        yield _found(row, "errors_in_a_row", detail, {"errors": len(errors), "events": events})
    codes = [str(record.event["code"]).split() for record in records if _is_own(record, "cell_proposed")]
    if len(codes) >= _SAME_CODE and all(code == codes[-1] for code in codes[-_SAME_CODE:]):
        detail = f"the last {_SAME_CODE} cells were the same code"
        yield _found(row, "same_code_again", detail, {"cells": _SAME_CODE, "events": events})


def _is_own(record: TraceRecord, kind: str) -> bool:
    return record.kind == kind and not record.event.get("node")


def _errors_in_a_row(records: Sequence[TraceRecord]) -> list[str]:
    """Errors since the last thing that went well, oldest first."""
    errors: list[str] = []
    for record in reversed(records):
        if record.kind not in _ENDS:
            continue
        event = record.event
        if event.get("ok") is True or event.get("outcome") in ("ok", "ended"):
            break
        errors.append(str(event.get("error") or event.get("error_message") or event.get("outcome") or ""))
    return errors[::-1]


def _spending(row: StuckRow, before: Tail | None, *, now_ms: int, rules: StuckRules) -> Iterator[Found]:
    most = rules.tokens_per_minute
    if most is None or before is None or now_ms <= before.at_ms:
        return
    rate = (row.facts["tokens"] - before.tokens) * 60_000 // (now_ms - before.at_ms)
    if rate > most:
        detail = f"it spends {rate} tokens a minute, more than {most}"
        yield _found(row, "spends_fast", detail, {"tokens_per_minute": rate, "limit": most})


def _found(row: StuckRow, kind: str, detail: str, evidence: dict[str, int]) -> Found:
    return Found(job_id=row.job_id, tenant_id=row.tenant_id, kind=kind, detail=detail, evidence=evidence)
