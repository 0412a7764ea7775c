"""How a job ended, for a person: the structured answer as tables, what it rests on, what it cost, what to type next."""

from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from controlplane.cli.events import value_text
from controlplane.cli.figures import between, count, counted, duration, money
from controlplane.cli.flags import typed_server
from controlplane.cli.safe import clipped, printable
from controlplane.views import JobView, StopView
from rlm_worker.contracts.result import CitationReport, JobResult, Usage

#: A column of sentences is readable when it is at least this wide.
_READABLE = 40
_SHORT = 28
_SHOWN_ITEMS = 25
_CELL_WIDTH = 160
#: Words at most this long, such as citations, are not broken over lines.
_WORD_WIDTH = 48

_ROLES = {"root": "cells written", "predict": "types filled"}

_HEADINGS = {
    "succeeded": ("Answer", "bold green"),
    "partial": ("Partial answer", "bold yellow"),
    "failed": ("Failed", "bold red"),
    "stopped": ("Stopped", "bold yellow"),
    "quarantined": ("Quarantined", "bold red"),
}


def render_end(view: JobView, *, next_steps: bool = True) -> RenderableType:
    """Everything about a job that has ended."""
    heading, style = _HEADINGS.get(view.state, (view.state, "bold"))
    parts: list[RenderableType] = [Rule(Text(heading, style=style), align="left", style="dim")]
    result = view.result
    if result is not None:
        parts += _why(result)
        if result.structured_output is not None:
            parts.append(fields_table(result.structured_output))
    if view.stop is not None:
        parts.append(Text(stop_line(view.stop), style="yellow"))
    parts.append(Rule(style="dim"))
    parts += [Text(line, style="dim") for line in facts(view)]
    if next_steps:
        parts += [Text(""), *_next(view)]
    return Group(*parts)


def _why(result: JobResult) -> list[RenderableType]:
    lines: list[str] = []
    if result.status == "partial":
        ended = f"the limit on {result.limit} ended the job" if result.limit else "the job was cut short"
        source = "its last DRAFT" if result.answered_by == "draft" else f"answered by {result.answered_by}"
        lines.append(f"{ended}; this is {source}, not the whole answer.")
    elif result.status == "failed":
        limit = f", the limit on {result.limit}" if result.limit else ""
        lines.append(f"{result.failure_class}{limit}.")
    elif result.status == "stopped" and result.structured_output is not None:
        lines.append("What it had when it was stopped; not the whole answer.")
    if result.message:
        lines.append(clipped(result.message, lines=12))
    return [Text(line, style="red" if result.status == "failed" else "yellow") for line in lines]


def fields_table(fields: dict[str, Any]) -> RenderableType:
    """Fields of an answer: lists of objects as tables, everything else as key and value."""
    parts: list[RenderableType] = []
    plain = Table.grid(padding=(0, 2))
    plain.add_column(style="bold", no_wrap=True)
    plain.add_column(overflow="fold")
    for name, value in fields.items():
        if _is_rows(value):
            parts.append(_Rows(name, value))
        else:
            plain.add_row(Text(printable(name)), _value(value))
    return Group(*([plain] if plain.row_count else []), *parts)


def _is_rows(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, dict) for item in value)


class _Rows:
    """Rows as a table where all of it fits, else one block a row: nothing is squeezed away or cut."""

    def __init__(self, name: str, rows: list[dict[str, Any]]) -> None:
        self._title = Text(f"{printable(name)} ({counted(len(rows), 'row')})", style="bold")
        self._rows = rows
        self._columns = list(dict.fromkeys(key for row in rows for key in row))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        fits = self._width() <= options.max_width
        yield _rows_table(self._title, self._rows, self._columns) if fits else _cards(self._title, self._rows)

    def _width(self) -> int:
        """What the table needs to be read: each column as wide as its longest word, sentences folded."""
        shown = self._rows[:_SHOWN_ITEMS]
        return sum(
            min(_READABLE, max(len(column), *(len(_cell(row.get(column, ""))) for row in shown))) + 3
            for column in self._columns
        )


def _cards(title: Text, rows: list[dict[str, Any]]) -> RenderableType:
    """Rows with too many fields for the width of a screen: one block each, short fields side by side."""
    shown: list[RenderableType] = [title]
    for number, row in enumerate(rows[:_SHOWN_ITEMS], start=1):
        texts = {printable(name): _cell(value) for name, value in row.items()}
        short = [f"{name} {text}" for name, text in texts.items() if len(text) <= _SHORT]
        card = Table.grid(padding=(0, 2))
        card.add_row(Text(f"{number}", style="bold"), Text(" · ".join(short)))
        for name, text in texts.items():
            if len(text) > _SHORT:
                card.add_row("", Text.assemble((f"{name}  ", "dim"), text, overflow="fold"))
        shown.append(card)
    if len(rows) > _SHOWN_ITEMS:
        shown.append(Text(f"… {len(rows) - _SHOWN_ITEMS} more rows: see --json", style="dim"))
    return Group(*shown)


def _rows_table(title: Text, rows: list[dict[str, Any]], columns: list[str]) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for column in columns:
        values = [row.get(column) for row in rows[:_SHOWN_ITEMS]]
        numeric = all(isinstance(value, int | float) for value in values)
        table.add_column(
            Text(printable(column)),
            justify="right" if numeric else "left",
            overflow="fold",
            no_wrap=all(_is_word(value) for value in values),
        )
    for row in rows[:_SHOWN_ITEMS]:
        table.add_row(*(Text(_cell(row.get(column, ""))) for column in columns))
    if len(rows) > _SHOWN_ITEMS:
        table.caption = f"… {len(rows) - _SHOWN_ITEMS} more rows: see --json"
    return table


def _is_word(value: Any) -> bool:
    return not isinstance(value, str) or (len(value) <= _WORD_WIDTH and " " not in value)


def _cell(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else value_text(value, width=_CELL_WIDTH)


def _value(value: Any) -> RenderableType:
    if isinstance(value, list):
        lines = [value_text(item, width=300) for item in value[:_SHOWN_ITEMS]]
        if len(value) > _SHOWN_ITEMS:
            lines.append(f"… {len(value) - _SHOWN_ITEMS} more: see --json")
        return Text("\n".join(lines) if lines else "(none)")
    if isinstance(value, dict):
        return Text(
            "\n".join(f"{printable(str(key))}: {value_text(item)}" for key, item in value.items()) or "(none)"
        )
    return Text(clipped(value, lines=200) if isinstance(value, str) else value_text(value))


def facts(view: JobView) -> list[str]:
    """What the answer rests on and what it cost, one statement a line."""
    result = view.result
    lines: list[str] = []
    if result is not None:
        lines.append(citation_line(result.citations))
        by_name: dict[str, list[str]] = {}
        for role, model in result.models.items():
            by_name.setdefault(model, []).append(_ROLES.get(role, role))
        filled = ", ".join(f"{' and '.join(roles)} by {model}" for model, roles in by_name.items())
        lines.append(f"models      {filled or view.spec.sub_model}")
    lines.append(f"usage       {usage_line(view.usage if result is None else result.usage)}")
    lines.append(f"trace       {count(view.trace_events)} events, head {view.trace_head[:16]}")
    if view.receipt_id:
        lines.append(f"receipt     {view.receipt_id}")
    return [line for line in lines if line]


def citation_line(report: CitationReport) -> str:
    if not report.checked:
        return ""
    line = f"citations   {report.verified} of {report.checked} citations checked and found"
    if report.quotes_checked:
        line += f", {report.quotes_verified} of {report.quotes_checked} quotes stand there"
    if not report.missing:
        return line
    missing = ", ".join(value_text(address, width=60) for address in report.missing[:3])
    return f"{line}; NOT in the evidence: {missing}{' …' if len(report.missing) > 3 else ''}"


def usage_line(usage: Usage) -> str:
    """Spend in one line."""
    parts = [
        counted(usage.iterations, "iteration"),
        counted(usage.subcalls, "subcall"),
        f"{count(usage.input_tokens)} tokens in",
        f"{count(usage.output_tokens)} out",
        money(usage.cost_usd),
        duration(usage.wall_time_ms),
    ]
    if usage.answered_from_journal:
        parts.insert(2, f"{usage.answered_from_journal} answered from the journal")
    return ", ".join(parts)


def stop_line(stop: StopView) -> str:
    """The timeline of a stop."""
    observed = (
        "not observed yet"
        if stop.observed_at is None
        else f"observed after {between(stop.requested_at, stop.observed_at)}"
    )
    left = ", ".join(str(pid) if pid else "of unknown number" for pid in stop.survivors) or "none"
    if stop.verified_at is None and stop.survivors:
        return f"{stop.order} requested, {observed}, NOT verified; it may still be at work in process {left}"
    if stop.verified_at is None:
        return f"{stop.order} requested, {observed}, not verified yet"
    return f"{stop.order} requested, {observed}, verified after {between(stop.requested_at, stop.verified_at)}; survivors: {left}"


def _next(view: JobView) -> list[RenderableType]:
    there = typed_server()
    steps = [
        (f"custody show {view.job_id}{there}", "everything about it"),
        (f"custody trace {view.job_id}{there}", "every step"),
    ]
    if view.is_terminal and view.result is not None and not there:
        steps.append((f"custody replay {view.job_id} --verify", "the same result without a model"))
    return [Text.assemble(("  " + command, "cyan"), f"   {why}") for command, why in steps]
