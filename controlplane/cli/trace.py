"""`custody trace`: what a job did, page by page; nothing is held in memory but the page."""

import time
from collections.abc import Iterator

import click
from rich.console import Console, RenderableType
from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from controlplane.bootstrap import App
from controlplane.cli.consoles import stdout_console
from controlplane.cli.events import code_of, observation_of, summary
from controlplane.cli.flags import home_flag, job_argument
from controlplane.cli.home import opened
from controlplane.cli.safe import clipped
from controlplane.cli.screens import QUIET_KINDS
from controlplane.cli.shapes import write_json_lines
from controlplane.cli.watch import has_ended, pages
from rlm_worker.contracts.trace import TraceRecord

_POLL_SECONDS = 0.1


@click.command()
@job_argument
@click.option("--follow", "-f", is_flag=True, help="Go on until the job has ended.")
@click.option(
    "--json", "as_json", is_flag=True, help="JSON Lines: one trace record a line, as it was chained."
)
@click.option("--lines", default=12, show_default=True, metavar="N", help="Lines of a cell's output to show.")
@click.option(
    "--all", "everything", is_flag=True, help="Show also the events of asking, not only of answers."
)
@home_flag
def trace(
    job_id: str, *, follow: bool, as_json: bool, lines: int, everything: bool, home: str | None
) -> None:
    """Read what a job did, step by step.

    JSON keys: seq, at_ms, event {kind, …}, prev, hash.
    """
    with opened(home) as app:
        job_id = app.job(job_id).job_id
        records = _following(app, job_id) if follow else pages(app, job_id, after=0)
        if as_json:
            write_json_lines(record.model_dump(mode="json") for record in records)
            return
        console = stdout_console()
        for record in records:
            if everything or record.kind not in QUIET_KINDS:
                _print(console, record, lines=lines)


def _following(app: App, job_id: str) -> Iterator[TraceRecord]:
    seen = 0
    while True:
        # The state is read before the trace: an ended job's trace is whole.
        ended = has_ended(app.job(job_id))
        for record in pages(app, job_id, after=seen):
            seen += 1
            yield record
        if ended:
            return
        time.sleep(_POLL_SECONDS)


def _print(console: Console, record: TraceRecord, *, lines: int) -> None:
    for part in blocks(record, lines=lines):
        console.print(part)


def blocks(record: TraceRecord, *, lines: int) -> list[RenderableType]:
    """One event as it is printed: a rule and the code for a cell, a line and the output for its end."""
    line = Text(f"{record.seq:>5}  {summary(record)}")
    code, output = code_of(record), observation_of(record, lines=lines)
    if code:
        return [
            Rule(line, align="left", style="dim"),
            _reasoning(record),
            Syntax(code, "python", theme="ansi_dark"),
        ]
    if output:
        return [line, Text(output, style="dim")]
    return [line]


def _reasoning(record: TraceRecord) -> RenderableType:
    said = record.event.get("reasoning")
    if record.event.get("driver") != "model" or not isinstance(said, str) or not said.strip():
        return Text("", end="")
    return Text(clipped(said.strip(), lines=8), style="italic")
