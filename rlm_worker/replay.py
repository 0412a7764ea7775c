"""Runs a recorded job again, without a model: every cell in a new sandbox, every answer from the record."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import sandbox
from rlm_worker.cells import run_cell, session_policy
from rlm_worker.children import Children
from rlm_worker.comparing import difference
from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import JobSpec, JsonObject, TraceRecord
from rlm_worker.contracts.gateway import RecordAnswer, RecordRequest
from rlm_worker.contracts.trace import GENESIS, CellFinished, EvidenceSealed, check_link
from rlm_worker.endings import Ending
from rlm_worker.execution import Execution, is_repeatable
from rlm_worker.hostcalls import CALLS, HostCalls
from rlm_worker.job import EvidenceKeeper
from rlm_worker.journal import Journal, NodeJournal, Recorded
from rlm_worker.meter import Meter
from rlm_worker.trace import TraceWriter
from rlm_worker.workbench import OpenSession, Workbench


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """The first place where the run and its record part."""

    iteration: int
    what: str
    expected: str
    got: str


@dataclass(frozen=True, kw_only=True)
class ReplayReport:
    """What a replay found."""

    events: int
    cells: int
    same: int
    divergence: Divergence | None
    result_same: bool
    evidence_changed: tuple[str, ...] = ()

    @property
    def verified(self) -> bool:
        return self.divergence is None and self.result_same and not self.evidence_changed


class _Nowhere:
    """Takes records and keeps none: a replay writes nothing."""

    def record(self, request: RecordRequest) -> RecordAnswer:
        last = request.records[-1]
        return RecordAnswer(events=last.seq + 1, head=last.hash)


def read_journal(records: Iterable[TraceRecord]) -> tuple[Journal, int]:
    """Check the chain link by link and fold it. Raises BrokenChain naming the first bad event."""
    journal, head, seq = Journal(), GENESIS, 0
    for record in records:
        check_link(record, seq=seq, prev=head)
        journal.fold(record.typed())
        seq, head = seq + 1, record.hash
    return journal, seq


async def verify_replay(
    spec: JobSpec,
    records: Iterable[TraceRecord],
    *,
    settings: WorkerSettings | None = None,
    evidence: EvidenceKeeper | None = None,
    open_session: OpenSession = sandbox.open_session,
) -> ReplayReport:
    """Re-execute every finished cell of the job's own REPL and compare what it printed, raised and submitted."""
    journal, events = read_journal(records)
    changed = _changed_evidence(spec, journal, evidence)
    writer = TraceWriter(_Nowhere(), job_id=spec.job_id, fence=1, events=events, head=GENESIS)
    bench = Workbench(
        spec=spec,
        settings=settings or WorkerSettings(),
        journal=journal,
        writer=writer,
        open_session=open_session,
    )
    meter = Meter(spec.budget)
    host = HostCalls(
        bench, spec, meter=meter, ask_child=Children(bench, spec, meter=meter, run=_no_child).ask
    )
    session = await open_session(session_policy(spec, calls=CALLS))
    try:
        cells, same, divergence = await _run_all(
            session, host, journal, seconds=spec.sandbox_policy.cell_seconds
        )
    finally:
        await session.close()
        await writer.close()
    node = journal.nodes[""]
    return ReplayReport(
        events=events,
        cells=cells,
        same=same,
        divergence=divergence,
        result_same=(host.submitted, host.draft) == (node.submitted, _last_draft(node)),
        evidence_changed=changed,
    )


async def _no_child(spec: JobSpec, node: str, meter: Meter) -> Ending:  # noqa: ARG001
    raise AssertionError(
        "a replayed cell starts no child: its answer is in the record, or the call is refused"
    )


async def _run_all(
    session: sandbox.Session, host: HostCalls, journal: Journal, *, seconds: float
) -> tuple[int, int, Divergence | None]:
    cells = same = 0
    divergence: Divergence | None = None
    for recorded in _repeatable(journal.nodes[""]):
        assert recorded.proposed is not None
        cells += 1
        at = Execution(recorded, node="", live=False)
        again = await run_cell(session, recorded.proposed.code, at=at, answer=host.answer, seconds=seconds)
        apart = _divergence(recorded, again, at)
        same += apart is None
        divergence = divergence or apart
        if again.state_lost:
            break
    return cells, same, divergence


def _repeatable(node: NodeJournal) -> list[Recorded]:
    """Cells that ran to an end which a replay can repeat: not those that a stop, a limit or a crash cut off."""
    return [
        recorded
        for iteration, recorded in sorted(node.iterations.items())
        if recorded.proposed is not None
        and (
            iteration == node.submitted_at
            or (recorded.finished is not None and is_repeatable(recorded.finished))
        )
    ]


def _last_draft(node: NodeJournal) -> JsonObject | None:
    drafts = [recorded.draft for recorded in _repeatable(node) if recorded.draft is not None]
    return drafts[-1] if drafts else None


def _divergence(recorded: Recorded, again: CellFinished, at: Execution) -> Divergence | None:
    """Where a cell did something else than before; a cell that died in its SUBMIT has only that to compare."""
    before, iteration = recorded.finished, recorded.iteration
    if at.missing:
        return Divergence(
            iteration=iteration, what="host call", expected="a recorded answer", got=at.missing[0]
        )
    apart = None if before is None else difference(before, again)
    if apart is None:
        return None
    return Divergence(iteration=iteration, what=apart.what, expected=apart.expected, got=apart.got)


def _changed_evidence(spec: JobSpec, journal: Journal, evidence: EvidenceKeeper | None) -> tuple[str, ...]:
    if evidence is None:
        return ()
    sealed: dict[str, EvidenceSealed] = journal.sealed
    return tuple(
        ref.name
        for ref in spec.input_artifacts
        if ref.name in sealed and evidence.seal(ref, threading.Event()) != sealed[ref.name].content_digest
    )
