"""One recorded REPL again: every cell in a new sandbox, and after each cell the children that it asked, in the order of their ids."""

from dataclasses import dataclass, field

import sandbox
from rlm_worker.cells import run_cell, session_policy
from rlm_worker.children import Children
from rlm_worker.comparing import Difference, difference
from rlm_worker.contracts import JobSpec, JsonObject, canonical
from rlm_worker.contracts.trace import CellFinished, ChildFinished, ChildStarted
from rlm_worker.endings import Ending
from rlm_worker.execution import Execution, is_repeatable
from rlm_worker.hostcalls import CALLS, HostCalls
from rlm_worker.journal import Journal, NodeJournal, Recorded
from rlm_worker.meter import Meter
from rlm_worker.workbench import Workbench

_SHOWN = 120


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """A place where the run and its record part."""

    iteration: int
    what: str
    expected: str
    got: str
    #: The child's id; empty: the job's own REPL.
    node: str = ""

    def __str__(self) -> str:
        where = f"{self.node}, iteration" if self.node else "iteration"
        return f"{where} {self.iteration}, {self.what}: recorded {self.expected!r}, now {self.got!r}"


@dataclass(kw_only=True)
class Tally:
    """What was repeated of a whole tree of REPLs, and the first thing that was not the same."""

    cells: int = 0
    same: int = 0
    children: set[str] = field(default_factory=set)
    divergence: Divergence | None = None

    def count_cell(self, apart: Divergence | None) -> None:
        self.cells += 1
        self.same += apart is None
        self.note(apart)

    def note(self, apart: Divergence | None) -> None:
        self.divergence = self.divergence or apart


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """A child whose recorded answer a cell was served, and what the cell asked it."""

    finished: ChildFinished
    schema: JsonObject
    payload: JsonObject


class Repeat:
    """The REPL of one node. Its children are repeated with what its own cells ask them, so that a cell that asks something else shows."""

    def __init__(self, bench: Workbench, spec: JobSpec, *, node: str = "", tally: Tally) -> None:
        self._bench = bench
        self._spec = spec
        self._node = node
        self._tally = tally
        self._journal = bench.journal.nodes[node]
        self._asked: list[_Asked] = []
        meter = Meter(bench.journal.budget or spec.budget)
        self._children = Children(bench, spec, meter=meter, run=_no_child, on_recorded=self._remember)
        self._host = HostCalls(bench, spec, meter=meter, ask_child=self._children.ask)

    @property
    def result_same(self) -> bool:
        """Whether what was submitted and drafted is what the record says."""
        return (self._host.submitted, self._host.draft) == (
            self._journal.submitted,
            last_draft(self._journal),
        )

    async def run(self) -> None:
        """Every cell that can be repeated, in order. The sandbox is gone when this returns."""
        session = await self._bench.open_session(session_policy(self._spec, calls=CALLS))
        try:
            for recorded in repeatable(self._journal):
                if await self._repeat(session, recorded):
                    return
        finally:
            await session.close()

    async def _repeat(self, session: sandbox.Session, recorded: Recorded) -> bool:
        """One cell and its children; True when the sandbox did not survive it."""
        assert recorded.proposed is not None
        self._asked.clear()
        at = Execution(recorded, node=self._node, live=False)
        again = await run_cell(
            session,
            recorded.proposed.code,
            at=at,
            answer=self._host.answer,
            seconds=self._spec.sandbox_policy.cell_seconds,
        )
        for asked in sorted(self._asked, key=lambda asked: asked.finished.ordinal):
            await self._repeat_child(asked)
        self._tally.count_cell(_divergence(recorded, again, at))
        return again.state_lost

    def _remember(self, finished: ChildFinished, schema: JsonObject, payload: JsonObject) -> None:
        self._asked.append(_Asked(finished=finished, schema=schema, payload=payload))

    async def _repeat_child(self, asked: _Asked) -> None:
        child_id = asked.finished.child_id
        if child_id in self._tally.children:
            return  # equal questions had one child
        self._tally.children.add(child_id)
        begun = started(self._bench.journal, asked.finished)
        if begun is None:
            self._tally.note(_of_child(asked, "child", "a record of its start", "none"))
            return
        spec = self._children.spec_of(begun, asked.schema, asked.payload)
        child = Repeat(self._bench, spec, node=child_id, tally=self._tally)
        await child.run()
        self._tally.note(child.difference_from(asked))

    def difference_from(self, asked: _Asked) -> Divergence | None:
        """Where this child's end is not its record's, or not what its parent was told."""
        if not self.result_same:
            recorded = self._journal.submitted or last_draft(self._journal)
            now = self._host.submitted or self._host.draft
            return _of_child(asked, "SUBMIT", _said(recorded), _said(now))
        told = asked.finished.value if asked.finished.ok else None
        if told != self._journal.submitted and (asked.finished.ok or not self._bench.journal.stop_seen):
            return _of_child(
                asked, "answer to its parent", _said(told), f"it submitted {_said(self._journal.submitted)}"
            )
        return None


def repeatable(node: NodeJournal) -> list[Recorded]:
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


def last_draft(node: NodeJournal) -> JsonObject | None:
    """What the repeatable cells drafted last."""
    drafts = [recorded.draft for recorded in repeatable(node) if recorded.draft is not None]
    return drafts[-1] if drafts else None


def started(journal: Journal, finished: ChildFinished) -> ChildStarted | None:
    """The start of a child, as its parent's cell recorded it."""
    begun = journal.nodes[finished.node].at(finished.iteration).children[finished.key]
    return next((event for event in begun if event.child_id == finished.child_id), None)


def all_children(journal: Journal) -> set[str]:
    """Every child that the record says was started."""
    return {
        event.child_id
        for node in journal.nodes.values()
        for recorded in node.iterations.values()
        for events in recorded.children.values()
        for event in events
    }


async def _no_child(spec: JobSpec, node: str, meter: Meter) -> Ending:  # noqa: ARG001
    raise AssertionError(
        "a replayed cell starts no child: its answer is in the record, or the call is refused"
    )


def _divergence(recorded: Recorded, again: CellFinished, at: Execution) -> Divergence | None:
    """Where a cell did something else than before; a cell that died in its SUBMIT has only that to compare."""
    apart = None if recorded.finished is None else difference(recorded.finished, again)
    if at.missing:
        apart = Difference(what="host call", expected="a recorded answer", got=at.missing[0])
    if apart is None:
        return None
    return Divergence(
        node=at.node, iteration=recorded.iteration, what=apart.what, expected=apart.expected, got=apart.got
    )


def _of_child(asked: _Asked, what: str, expected: str, got: str) -> Divergence:
    """A finding about a child as a whole; the iteration is its parent's, who asked it."""
    return Divergence(
        node=asked.finished.child_id,
        iteration=asked.finished.iteration,
        what=what,
        expected=expected,
        got=got,
    )


def _said(fields: object) -> str:
    return "nothing" if fields is None else canonical(fields).decode("utf-8", "replace")[:_SHOWN]
