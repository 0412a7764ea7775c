"""`custody replay`: a finished job again, from its trace alone; with --verify, every cell must do what it did."""

from collections.abc import Iterator
from pathlib import Path

import click
from pydantic import ValidationError

from controlplane import worker_parts
from controlplane.bootstrap import App
from controlplane.cli.exits import Exit, Refusal
from controlplane.cli.figures import counted
from controlplane.cli.flags import home_flag, job_argument, json_flag
from controlplane.cli.home import opened
from controlplane.cli.safe import one_line, printable
from controlplane.cli.shapes import write_json
from controlplane.cli.watch import pages
from controlplane.errors import Tampered
from controlplane.views import JobView
from controlplane.worker_parts import Replayed
from rlm_worker.contracts.trace import GENESIS, BrokenChain, TraceRecord, check_link


@click.command()
@job_argument
@click.option("--verify", is_flag=True, help="Exit 4 unless every cell and the result are the same.")
@click.option(
    "--trace", "trace_file", type=click.Path(path_type=Path), help="A trace from 'custody trace --json'."
)
@json_flag
@home_flag
def replay(job_id: str, *, verify: bool, trace_file: Path | None, as_json: bool, home: str | None) -> int:
    """Run a finished job again from its trace: no model is asked, no token is spent.

    A trace that was changed is refused, and the place is named.
    JSON keys: job_id, events, chain, cells, same, result_same, divergence, evidence_changed.
    """
    with opened(home) as app:
        view = app.job(job_id)
        if not view.is_terminal:
            raise Refusal(f"job {view.job_id} is {view.state}: a replay needs a job that has ended.")
        if trace_file is None:
            app.verify_trace(view.job_id)
        records = list(_checked(_records(app, view, trace_file)))
        _require_whole(view, records)
        outcome = worker_parts.replay(view.spec, records, seal=app.evidence.seal)
    if as_json:
        write_json({"job_id": view.job_id, "events": len(records), "chain": "whole", **outcome.document()})
    else:
        click.echo(_words(view, records, outcome))
    return Exit.ANSWERED if outcome.is_same or not verify else Exit.FAILED


def _records(app: App, view: JobView, trace_file: Path | None) -> Iterator[TraceRecord]:
    if trace_file is None:
        yield from pages(app, view.job_id, after=0)
        return
    try:
        with trace_file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                yield _record(line, where=f"{trace_file} line {number}")
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"the trace {str(trace_file)!r} cannot be read: {error}.") from None


def _record(line: str, *, where: str) -> TraceRecord:
    try:
        return TraceRecord.model_validate_json(line)
    except ValidationError:
        raise Tampered(
            f"{where} is not a trace record: the trace was changed or cut. It is refused."
        ) from None


def _checked(records: Iterator[TraceRecord]) -> Iterator[TraceRecord]:
    head = GENESIS
    for seq, record in enumerate(records):
        try:
            check_link(record, seq=seq, prev=head)
        except BrokenChain as broken:
            raise Tampered(f"the trace was changed, {broken}. It is refused; nothing was replayed.") from None
        head = record.hash
        yield record


def _require_whole(view: JobView, records: list[TraceRecord]) -> None:
    head = records[-1].hash if records else GENESIS
    if (len(records), head) != (view.trace_events, view.trace_head):
        raise Tampered(
            f"this trace has {counted(len(records), 'event')} and ends in {head[:16]}, that of job {view.job_id} has "
            f"{view.trace_events} and ends in {view.trace_head[:16]}: it is another trace, or was cut. It is refused."
        )


def _words(view: JobView, records: list[TraceRecord], outcome: Replayed) -> str:
    whole = f"trace of {view.job_id}: {counted(len(records), 'event')}, the chain is whole"
    cells = f"cells: {outcome.same} of {outcome.cells} did the same again, without a model"
    result = "result: the same" if outcome.result_same else "result: NOT the same"
    lines = [whole, cells, result]
    if outcome.divergence:
        lines.append(f"divergence: {printable(outcome.divergence)}")
    if outcome.evidence_changed:
        names = ", ".join(one_line(name) for name in outcome.evidence_changed)
        lines.append(f"evidence: NOT what the job read, it was changed since: {names}")
    return "\n".join(lines)
