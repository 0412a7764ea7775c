"""A recording writes the cells: turns come from the journal of the same job, so resume and replay cost no model call."""

from rlm_worker.drivers.driver import Cell, DriverKind, Finished, NoCell, Turn, View
from rlm_worker.journal import NodeJournal


class RecordingDriver:
    """Serves the recorded turns of one REPL, in order, and then has no more."""

    kind: DriverKind = "recording"

    def __init__(self, journal: NodeJournal) -> None:
        self._journal = journal

    async def next(self, view: View) -> Turn:
        recorded = self._journal.iterations.get(view.iteration)
        if recorded is not None and recorded.proposed is not None:
            return Cell(code=recorded.proposed.code, reasoning=recorded.proposed.reasoning)
        if recorded is not None and recorded.rejected is not None:
            return NoCell(reason=recorded.rejected.reason)
        return Finished()
