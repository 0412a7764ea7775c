"""`custody replay`: a finished job again, from its trace alone; with --verify, every cell must do what it did."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from pydantic import ValidationError

from controlplane import worker_parts
from controlplane.adapters.evidence import EvidenceRoom
from controlplane.adapters.trace_files import TraceFile, verified
from controlplane.bootstrap import App
from controlplane.cli.exits import Exit, Refusal
from controlplane.cli.figures import counted
from controlplane.cli.flags import Where, json_flag, where_flags
from controlplane.cli.home import only_here, opened_home
from controlplane.cli.inputs import evidence_path
from controlplane.cli.safe import one_line, printable
from controlplane.cli.shapes import write_json
from controlplane.cli.traces import is_file
from controlplane.cli.watch import pages
from controlplane.errors import Tampered
from controlplane.views import JobView
from controlplane.worker_parts import Replayed
from rlm_worker.contracts import EvidenceRef, JobSpec
from rlm_worker.contracts.trace import GENESIS, BrokenChain, TraceRecord, check_link

_ELSEWHERE = (
    "a replay runs cells on this machine. Get the job as a file with 'custody export JOB --out job.jsonl', then run "
    "'custody replay job.jsonl --evidence NAME=PATH'; a job of a home here is replayed with --home."
)


@dataclass(frozen=True, kw_only=True)
class _Told:
    """What a replay is told about."""

    job_id: str
    events: int
    outcome: Replayed


@click.command()
@click.argument("job_or_file", metavar="JOB|FILE")
@click.option("--verify", is_flag=True, help="Exit 4 unless every cell and the result are the same.")
@click.option(
    "--evidence",
    "-e",
    multiple=True,
    metavar="NAME=PATH",
    help="Where evidence lies here, of a job that ran elsewhere.",
)
@click.option(
    "--trace", "trace_file", type=click.Path(path_type=Path), help="A trace from 'custody trace --json'."
)
@json_flag
@where_flags
def replay(
    job_or_file: str,
    *,
    verify: bool,
    evidence: tuple[str, ...],
    trace_file: Path | None,
    as_json: bool,
    where: Where,
) -> int:
    """Run a finished job again from its trace: no model is asked, no token is spent.

    FILE is one that 'custody export' wrote, here or on another machine; then --evidence says where its evidence lies.
    A trace that was changed is refused, and the place is named.
    Children of rlm_query() are run again too, with what the cells ask them now; a difference names the child.
    JSON keys: job_id, events, chain, cells, same, result_same, divergence, children, children_cut_off, evidence_changed.
    """
    if is_file(job_or_file):
        told = _replay_file(Path(job_or_file), evidence)
    else:
        told = _replay_job(job_or_file, trace_file, evidence, home=only_here(where, _ELSEWHERE))
    if as_json:
        write_json(
            {"job_id": told.job_id, "events": told.events, "chain": "whole", **told.outcome.document()}
        )
    else:
        click.echo(_words(told))
    return Exit.ANSWERED if told.outcome.is_same or not verify else Exit.FAILED


def _replay_job(name: str, trace_file: Path | None, evidence: tuple[str, ...], *, home: str | None) -> _Told:
    with tempfile.TemporaryDirectory() as aside, opened_home(home) as app:
        view = app.job(name)
        if not view.is_terminal:
            raise Refusal(f"job {view.job_id} is {view.state}: a replay needs a job that has ended.")
        if trace_file is None:
            app.verify_trace(view.job_id)
        records = _whole(view, _records(app, view, trace_file))
        room = EvidenceRoom(Path(aside)) if evidence else app.evidence
        spec = _relocated(view.spec, evidence, room=room) if evidence else view.spec
        outcome = worker_parts.replay(spec, records, seal=room.seal)
    return _Told(job_id=view.job_id, events=view.trace_events, outcome=outcome)


def _replay_file(path: Path, evidence: tuple[str, ...]) -> _Told:
    """With the file and the evidence alone: what a replay must note of evidence is put aside and forgotten."""
    with tempfile.TemporaryDirectory() as aside, TraceFile(path) as trace:
        room = EvidenceRoom(Path(aside))
        spec = _relocated(trace.header.spec, evidence, room=room)
        outcome = worker_parts.replay(spec, verified(trace), seal=room.seal)
        return _Told(job_id=spec.job_id, events=trace.header.events, outcome=outcome)


def _relocated(spec: JobSpec, evidence: tuple[str, ...], *, room: EvidenceRoom) -> JobSpec:
    places = dict(text.partition("=")[::2] for text in evidence)
    wanted = [ref.name for ref in spec.input_artifacts]
    missing = [name for name in wanted if name not in places]
    strange = [name for name in places if name not in wanted]
    if missing or strange:
        needs = " ".join(f"--evidence {name}=PATH" for name in wanted) or "no evidence"
        raise Refusal(f"this job was over other evidence than is named here: it needs {needs}.")
    refs = tuple(_staged(ref, places[ref.name], room=room) for ref in spec.input_artifacts)
    return spec.model_copy(update={"input_artifacts": refs})


def _staged(ref: EvidenceRef, place: str, *, room: EvidenceRoom) -> EvidenceRef:
    staged = room.stage([evidence_path(place)])[0].ref
    return staged.model_copy(update={"name": ref.name, "trust": ref.trust})


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


def _whole(view: JobView, records: Iterator[TraceRecord]) -> Iterator[TraceRecord]:
    """The records, each link checked, up to the very end of the job's trace; nothing has run before that is known."""
    seq, head = 0, GENESIS
    for record in records:
        try:
            check_link(record, seq=seq, prev=head)
        except BrokenChain as broken:
            raise Tampered(f"the trace was changed, {broken}. It is refused; nothing was replayed.") from None
        seq, head = seq + 1, record.hash
        yield record
    if (seq, head) != (view.trace_events, view.trace_head):
        raise Tampered(
            f"this trace has {counted(seq, 'event')} and ends in {head[:16]}, that of job {view.job_id} has "
            f"{view.trace_events} and ends in {view.trace_head[:16]}: it is another trace, or was cut. It is refused."
        )


def _words(told: _Told) -> str:
    outcome = told.outcome
    whole = f"trace of {told.job_id}: {counted(told.events, 'event')}, the chain is whole"
    among = f", with those of {outcome.children} children" if outcome.children else ""
    cells = f"cells: {outcome.same} of {outcome.cells} did the same again{among}, without a model"
    result = "result: the same" if outcome.result_same else "result: NOT the same"
    lines = [whole, cells, result]
    if outcome.divergence:
        lines.append(f"divergence: {printable(outcome.divergence)}")
    if outcome.children_cut_off:
        lines.append(
            f"not repeated, because the cell that asked was cut off: {', '.join(outcome.children_cut_off)}"
        )
    if outcome.evidence_changed:
        names = ", ".join(one_line(name) for name in outcome.evidence_changed)
        lines.append(f"evidence: NOT what the job read, it was changed since: {names}")
    return "\n".join(lines)
