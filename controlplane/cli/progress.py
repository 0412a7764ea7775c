"""What a trace says so far, folded event by event into what the live view shows. Pure: no clock, no terminal."""

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from controlplane.cli.safe import one_line
from rlm_worker.contracts.base import JsonObject
from rlm_worker.contracts.trace import TraceRecord


@dataclass(kw_only=True)
class Row:
    """One iteration."""

    number: int
    #: The REPL the cell ran in: empty for the job's own, a child's id below an rlm_query.
    node: str
    title: str
    started_ms: int
    finished_ms: int | None = None
    outcome: str = "working"
    detail: str = ""
    subcalls: int = 0


@dataclass(kw_only=True)
class Progress:
    """The folded trace. `take` is the only way to change it."""

    rows: dict[tuple[str, int], Row] = field(default_factory=dict)
    events: int = 0
    attempt: int = 0
    #: Time of the attempts before this one, without the gaps between them.
    earlier_ms: int = 0
    attempt_ms: int | None = None
    last_ms: int | None = None
    backend: str = ""
    thinking: str = ""
    started: int = 0
    finished: int = 0
    failed: int = 0
    in_flight: dict[int, str] = field(default_factory=dict)
    subcall_ms: int = 0
    children: int = 0
    tokens: int = 0
    cost: Decimal | None = Decimal(0)
    drafts: int = 0
    notices: list[str] = field(default_factory=list)
    ended: str = ""

    @property
    def mean_subcall_ms(self) -> int:
        return self.subcall_ms // self.finished if self.finished else 0

    def take(self, record: TraceRecord) -> None:
        """Fold one record; an event kind this version does not know changes only the counters."""
        self.events += 1
        if self.attempt_ms is None:
            self.attempt_ms = record.at_ms
        fold = _FOLDS.get(record.kind)
        if fold is not None:
            fold(self, record.event, record.at_ms)
        self.last_ms = record.at_ms

    def elapsed_ms(self, now_ms: int) -> int:
        """Time worked so far, over all attempts."""
        if self.attempt_ms is None:
            return 0
        until = self.last_ms if self.ended and self.last_ms is not None else now_ms
        return self.earlier_ms + max(until - self.attempt_ms, 0)


_Fold = Callable[[Progress, JsonObject, int], None]


def cell_name(code: str, *, reasoning: str = "", driver: str = "model") -> str:
    """What to call a cell: the title a playbook gave it, else its first line that says something."""
    titled = [reasoning] if driver == "playbook" else []
    for line in [*titled, *code.splitlines()]:
        words = line.strip().lstrip("#% ")
        if words:
            return one_line(words, width=72)
    return "(empty cell)"


def _number(event: JsonObject, name: str) -> int:
    value = event.get(name)
    return value if isinstance(value, int) else 0


def _text(event: JsonObject, name: str) -> str:
    value = event.get(name)
    return value if isinstance(value, str) else ""


def _place(event: JsonObject) -> tuple[str, int]:
    return _text(event, "node"), _number(event, "iteration")


def _row(event: JsonObject, *, title: str, at_ms: int) -> Row:
    node, number = _place(event)
    return Row(number=number, node=node, title=title, started_ms=at_ms)


def _attempt_started(progress: Progress, event: JsonObject, at_ms: int) -> None:
    if progress.attempt_ms is not None and progress.last_ms is not None:
        progress.earlier_ms += max(progress.last_ms - progress.attempt_ms, 0)
    progress.attempt_ms, progress.ended = at_ms, ""
    progress.attempt = _number(event, "attempt")
    progress.in_flight.clear()
    taken_over = _number(event, "resumed_iterations")
    if taken_over or progress.attempt > 1:
        progress.notices.append(
            f"attempt {progress.attempt}: {taken_over} iterations taken over from the journal"
        )


def _sandbox_opened(progress: Progress, event: JsonObject, _: int) -> None:
    progress.backend = _text(event, "backend")
    if _text(event, "reason") == "state_lost":
        progress.notices.append("the sandbox was lost; its state is rebuilt from the journal")


def _model_asked(progress: Progress, event: JsonObject, _: int) -> None:
    progress.thinking = _text(event, "model")


def _model_answered(progress: Progress, event: JsonObject, _: int) -> None:
    progress.thinking = ""
    _spend(progress, event.get("spend"))


def _cell_proposed(progress: Progress, event: JsonObject, at_ms: int) -> None:
    title = cell_name(
        _text(event, "code"), reasoning=_text(event, "reasoning"), driver=_text(event, "driver")
    )
    progress.rows[_place(event)] = _row(event, title=title, at_ms=at_ms)


def _cell_rejected(progress: Progress, event: JsonObject, at_ms: int) -> None:
    row = progress.rows.setdefault(_place(event), _row(event, title="(no usable cell)", at_ms=at_ms))
    row.finished_ms, row.outcome, row.detail = at_ms, "rejected", one_line(_text(event, "reason"))


def _cell_finished(progress: Progress, event: JsonObject, at_ms: int) -> None:
    row = progress.rows.get(_place(event))
    if row is not None:
        row.finished_ms, row.outcome = at_ms, _text(event, "outcome")
        error = ": ".join(
            part for part in (_text(event, "error_type"), _text(event, "error_message")) if part
        )
        row.detail = one_line(error)


def _subcall_started(progress: Progress, event: JsonObject, _: int) -> None:
    progress.started += 1
    progress.in_flight[_number(event, "ordinal")] = _text(event, "model")
    row = progress.rows.get(_place(event))
    if row is not None:
        row.subcalls += 1


def _subcall_finished(progress: Progress, event: JsonObject, _: int) -> None:
    progress.finished += 1
    progress.failed += 0 if event.get("ok") else 1
    progress.subcall_ms += _number(event, "duration_ms")
    progress.in_flight.pop(_number(event, "ordinal"), None)
    _spend(progress, event.get("spend"))


def _subcall_lost(progress: Progress, event: JsonObject, _: int) -> None:
    progress.in_flight.pop(_number(event, "ordinal"), None)
    progress.notices.append("the outcome of a subcall is unknown: what it may have cost is charged")
    _spend(progress, event.get("charged"))


def _child_started(progress: Progress, event: JsonObject, _: int) -> None:
    progress.children += 1
    progress.notices.append(f"child {progress.children}: {one_line(_text(event, 'task'), width=60)}")


def _draft_recorded(progress: Progress, _event: JsonObject, _: int) -> None:
    progress.drafts += 1


def _budget_exhausted(progress: Progress, event: JsonObject, _: int) -> None:
    spent, limit = _text(event, "spent"), _text(event, "limit")
    progress.notices.append(f"the budget of {_text(event, 'dimension')} is used up ({spent} of {limit})")


def _submit_rejected(progress: Progress, event: JsonObject, _: int) -> None:
    errors = event.get("errors")
    first = str(errors[0]) if isinstance(errors, list) and errors else ""
    progress.notices.append(f"SUBMIT did not fit the schema: {one_line(first, width=80)}")


def _notice(template: str, *names: str) -> _Fold:
    def fold(progress: Progress, event: JsonObject, _: int) -> None:
        progress.notices.append(template.format(*(one_line(_text(event, name), width=80) for name in names)))

    return fold


def _attempt_ended(progress: Progress, event: JsonObject, _: int) -> None:
    if _text(event, "node"):
        return
    progress.ended = _text(event, "status")
    progress.thinking = ""
    progress.in_flight.clear()


def _spend(progress: Progress, spend: object) -> None:
    if not isinstance(spend, dict):
        return
    progress.tokens += _number(spend, "input_tokens") + _number(spend, "output_tokens")
    cost = spend.get("cost_usd")
    if cost is None or progress.cost is None:
        progress.cost = None
    else:
        progress.cost += Decimal(str(cost))


_FOLDS: dict[str, _Fold] = {
    "attempt_started": _attempt_started,
    "sandbox_opened": _sandbox_opened,
    "model_asked": _model_asked,
    "model_answered": _model_answered,
    "cell_proposed": _cell_proposed,
    "cell_rejected": _cell_rejected,
    "cell_finished": _cell_finished,
    "subcall_started": _subcall_started,
    "subcall_finished": _subcall_finished,
    "subcall_lost": _subcall_lost,
    "child_started": _child_started,
    "draft_recorded": _draft_recorded,
    "budget_exhausted": _budget_exhausted,
    "submit_rejected": _submit_rejected,
    "policy_denied": _notice("denied: {} ({})", "what", "reason"),
    "no_progress": _notice("no progress: {}", "detail"),
    "rolled_over": _notice("the conversation starts anew; `custody trace` lists what it leaves out"),
    "steer_observed": _notice("steered: {}", "text"),
    "stop_observed": _notice("{} order observed", "order"),
    "diverged": _notice("the replayed cell diverged: {}", "detail"),
    "attempt_ended": _attempt_ended,
}
