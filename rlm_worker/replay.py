"""Runs a recorded job again, without a model: every cell in a new sandbox, every answer from the record."""

import threading
from collections.abc import Iterable
from dataclasses import dataclass

import sandbox
from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import JobSpec, TraceRecord
from rlm_worker.contracts.gateway import RecordAnswer, RecordRequest
from rlm_worker.contracts.trace import GENESIS, EvidenceSealed, check_link
from rlm_worker.job import EvidenceKeeper
from rlm_worker.journal import Journal
from rlm_worker.repeating import Divergence, Repeat, Tally, all_children
from rlm_worker.trace import TraceWriter
from rlm_worker.workbench import OpenSession, Workbench


@dataclass(frozen=True, kw_only=True)
class ReplayReport:
    """What a replay found: cells of the job's own REPL and of all its children."""

    events: int
    cells: int
    same: int
    #: Children that were repeated.
    children: int
    #: Ids of children that were not: the cell that asked them was cut off, so what it asked them is not known.
    children_cut_off: tuple[str, ...]
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
    """Re-execute every finished cell of the job and of its children; compare what each printed, raised and submitted."""
    journal, events = read_journal(records)
    if journal.budget is not None:
        # Its last cells ran under these; a sandbox is made once for all of them.
        spec = spec.model_copy(update={"budget": journal.budget})
    changed = _changed_evidence(spec, journal, evidence)
    writer = TraceWriter(_Nowhere(), job_id=spec.job_id, fence=1, events=events, head=GENESIS)
    bench = Workbench(
        spec=spec,
        settings=settings or WorkerSettings(),
        journal=journal,
        writer=writer,
        open_session=open_session,
    )
    tally = Tally()
    repeat = Repeat(bench, spec, tally=tally)
    try:
        await repeat.run()
    finally:
        await writer.close()
    return ReplayReport(
        events=events,
        cells=tally.cells,
        same=tally.same,
        children=len(tally.children),
        children_cut_off=tuple(sorted(all_children(journal) - tally.children)),
        divergence=tally.divergence,
        result_same=repeat.result_same,
        evidence_changed=changed,
    )


def _changed_evidence(spec: JobSpec, journal: Journal, evidence: EvidenceKeeper | None) -> tuple[str, ...]:
    if evidence is None:
        return ()
    sealed: dict[str, EvidenceSealed] = journal.sealed
    return tuple(
        ref.name
        for ref in spec.input_artifacts
        if ref.name in sealed and evidence.seal(ref, threading.Event()) != sealed[ref.name].content_digest
    )
