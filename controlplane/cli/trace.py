"""`custody trace`: what a job did, page by page; nothing is held in memory but the page."""

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from controlplane.adapters.trace_files import TraceFile, verified
from controlplane.cli.consoles import stdout_console
from controlplane.cli.events import code_of, observation_of, summary
from controlplane.cli.exits import Refusal
from controlplane.cli.flags import Where, where_flags
from controlplane.cli.home import opened
from controlplane.cli.safe import clipped, whole
from controlplane.cli.screens import QUIET_KINDS
from controlplane.cli.shapes import write_json_lines
from controlplane.cli.traces import is_file
from controlplane.cli.watch import has_ended, pages
from controlplane.custodian import Custodian
from rlm_worker.contracts.trace import TraceRecord

_LINES = 12
#: More than any text has.
_ALL = sys.maxsize


@dataclass(frozen=True, kw_only=True)
class Style:
    """How a trace is printed."""

    lines: int = _LINES
    #: Nothing is cut, neither at the side nor at the end.
    is_whole: bool = False
    #: The time of day, instead of the time since the first event.
    has_dates: bool = False
    #: Also events of asking.
    has_all: bool = False


@click.command()
@click.argument("job_or_file", metavar="JOB|FILE")
@click.option("--follow", "-f", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "--json", "as_json", is_flag=True, help="JSON Lines: one trace record a line, as it was chained."
)
@click.option(
    "--lines", type=int, metavar="N", help=f"Lines of a cell's output to show.  [default: {_LINES}]"
)
@click.option("--full", is_flag=True, help="Cut nothing. A pipe is never cut at the side.")
@click.option(
    "--times", is_flag=True, help="Date and time of each event, in UTC, instead of the time since the first."
)
@click.option(
    "--all", "everything", is_flag=True, help="Show also the events of asking, not only of answers."
)
@where_flags
def trace(job_or_file: str, *, follow: bool, as_json: bool, where: Where, **shown: Any) -> None:
    """Read what a job did, step by step: a job of this home, or a file that `custody export` wrote.

    JSON keys: seq, at_ms, event {kind, …}, prev, hash.
    """
    style = _style(**shown)
    if is_file(job_or_file):
        if follow:
            raise Refusal("a file does not grow: --follow takes a job.")
        with TraceFile(Path(job_or_file)) as file:
            _show(verified(file), style=style, as_json=as_json)
        return
    with opened(where) as app:
        job_id = app.job(job_or_file).job_id
        records = _following(app, job_id) if follow else pages(app, job_id, after=0)
        _show(records, style=style, as_json=as_json)


def _style(*, lines: int | None, full: bool, times: bool, everything: bool) -> Style:
    return Style(
        lines=lines or (_ALL if full else _LINES),
        is_whole=full or not sys.stdout.isatty(),
        has_dates=times,
        has_all=everything,
    )


def _show(records: Iterable[TraceRecord], *, style: Style, as_json: bool) -> None:
    if as_json:
        write_json_lines(record.model_dump(mode="json") for record in records)
        return
    console = stdout_console()
    first_ms: int | None = None
    for record in records:
        first_ms = record.at_ms if first_ms is None else first_ms
        if style.has_all or record.kind not in QUIET_KINDS:
            _print(console, record, style=style, first_ms=first_ms)


def _following(app: Custodian, job_id: str) -> Iterator[TraceRecord]:
    seen = 0
    for view, records in app.follow(job_id, wait=time.sleep):
        seen += len(records)
        yield from records
        if has_ended(view) and seen >= view.trace_events:
            return


def _print(console: Console, record: TraceRecord, *, style: Style, first_ms: int) -> None:
    for part in blocks(record, style=style, first_ms=first_ms):
        console.print(part, soft_wrap=style.is_whole)


def blocks(record: TraceRecord, *, style: Style, first_ms: int) -> list[RenderableType]:
    """One event as it is printed: a rule and the code for a cell, a line and the output for its end."""
    with whole(wanted=style.is_whole):
        line = Text(f"{record.seq:>5}  {_when(record, style=style, first_ms=first_ms)}  {summary(record)}")
        code, output = code_of(record), observation_of(record, lines=style.lines)
        if code:
            return [_head(line, style=style), _reasoning(record, style=style), _code(code, style=style)]
    if output:
        return [line, Text(output, style="dim")]
    return [line]


def _when(record: TraceRecord, *, style: Style, first_ms: int) -> str:
    if style.has_dates:
        moment = datetime.fromtimestamp(record.at_ms / 1000, UTC)
        return moment.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
    return f"{(record.at_ms - first_ms) / 1000:8.2f} s"


def _head(line: Text, *, style: Style) -> RenderableType:
    """A rule cuts its title to the window, so there is none where nothing is cut."""
    return (
        Text("─── ", style="dim").append_text(line)
        if style.is_whole
        else Rule(line, align="left", style="dim")
    )


def _code(code: str, *, style: Style) -> RenderableType:
    return Text(code) if style.is_whole else Syntax(code, "python", theme="ansi_dark")


def _reasoning(record: TraceRecord, *, style: Style) -> RenderableType:
    said = record.event.get("reasoning")
    if record.event.get("driver") != "model" or not isinstance(said, str) or not said.strip():
        return Text("", end="")
    return Text(clipped(said.strip(), lines=max(8, style.lines) if style.is_whole else 8), style="italic")
