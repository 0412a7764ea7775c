"""`custody export`, `import` and `verify`: a job as a file that stands for itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from controlplane.adapters.trace_files import TraceFile, TraceHeader, verified, write_trace
from controlplane.cli.exits import Exit, Refusal
from controlplane.cli.figures import counted
from controlplane.cli.flags import Where, job_argument, json_flag, where_flags
from controlplane.cli.home import only_here, opened, opened_home
from controlplane.cli.orders import operator
from controlplane.cli.shapes import write_json
from controlplane.cli.watch import pages
from controlplane.custodian import Custodian
from controlplane.views import JobView
from rlm_worker.contracts.trace import TraceRecord


@click.command()
@job_argument
@click.option(
    "--out",
    "-o",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="FILE.jsonl or FILE.jsonl.gz",
)
@json_flag
@where_flags
def export(job_id: str, *, out: Path, as_json: bool, where: Where) -> None:
    """Write a job's spec, trace and result to a file: enough to verify and replay it anywhere.

    JSON keys: job_id, events, head, file.
    """
    with opened(where) as app:
        view = app.job(job_id)
        header = TraceHeader(
            spec=view.spec,
            state=view.state,
            result=view.result,
            events=view.trace_events,
            head=view.trace_head,
            is_spec_whole=app.has_whole_specs or not view.spec.input_artifacts,
        )
        write_trace(out, header, _until(app, view))
    if as_json:
        write_json(
            {"job_id": view.job_id, "events": view.trace_events, "head": view.trace_head, "file": str(out)}
        )
    else:
        click.echo(f"job {view.job_id}: {counted(view.trace_events, 'event')} written to {out}")


def _until(app: Custodian, view: JobView) -> Iterator[TraceRecord]:
    """The trace as long as the view says it is: a working job's grows while it is read."""
    for record in pages(app, view.job_id, after=0):
        if record.seq >= view.trace_events:
            return
        yield record


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@json_flag
@where_flags
def import_(file: Path, *, as_json: bool, where: Where) -> None:
    """Enter a job from an exported file into this home, to be read, verified and replayed here.

    JSON keys: job_id, events, imported (false: it was here already).
    """
    home = only_here(
        where,
        "a trace is entered into a home of this machine, not into a server: leave out --server, or name --home.",
    )
    with TraceFile(file) as trace, opened_home(home, must_exist=False) as app:
        header = trace.header
        if header.result is None:
            raise Refusal(
                f"job {header.spec.job_id} had not ended when it was exported: export it again when it has."
            )
        is_new = app.import_job(header.spec, header.result, verified(trace), by=operator())
    if as_json:
        write_json({"job_id": header.spec.job_id, "events": header.events, "imported": is_new})
    else:
        said = f"imported with {counted(header.events, 'event')}" if is_new else "is here already"
        click.echo(f"job {header.spec.job_id} {said}")


@click.command()
@click.argument("job_or_file", metavar="JOB|FILE")
@json_flag
@where_flags
def verify(job_or_file: str, *, as_json: bool, where: Where) -> int:
    """Check the hash chain of a job, or of an exported file alone: no home, no database, no sandbox is needed.

    Exits 4 and names the first place that does not hold. JSON keys: job_id, events, head, chain, spec (proved or not).
    """
    found = _verify_file(Path(job_or_file)) if is_file(job_or_file) else _verify_job(job_or_file, where)
    if as_json:
        proved = "proved" if found.is_spec_proved else "not proved"
        write_json(
            {
                "job_id": found.job_id,
                "events": found.events,
                "head": found.head,
                "chain": "whole",
                "spec": proved,
            }
        )
        return Exit.ANSWERED
    events = counted(found.events, "event")
    click.echo(f"trace of {found.job_id}: {events}, the chain is whole and ends in {found.head[:16]}")
    if not found.is_spec_proved:
        click.echo("Its spec came from a server without the places of evidence: the trace does not prove it.")
    return Exit.ANSWERED


@dataclass(frozen=True, kw_only=True)
class _Verified:
    job_id: str
    events: int
    head: str
    is_spec_proved: bool = True


def is_file(name: str) -> bool:
    """Whether a file is meant and no job: ids of jobs hold neither a dot nor a slash."""
    return ("." in name or "/" in name) and Path(name).is_file()


def _verify_file(path: Path) -> _Verified:
    with TraceFile(path) as trace:
        events = sum(1 for _ in verified(trace))
        header = trace.header
        return _Verified(
            job_id=header.spec.job_id, events=events, head=header.head, is_spec_proved=header.is_spec_whole
        )


def _verify_job(name: str, where: Where) -> _Verified:
    with opened(where) as app:
        view = app.job(name)
        events = app.verify(view)
        return _Verified(job_id=view.job_id, events=events, head=view.trace_head)
