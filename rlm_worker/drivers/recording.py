"""A recording writes the cells: turns come from the journal of the same job, so resume and replay cost no model call."""

from rlm_worker.drivers.driver import Cell, DriverKind, Finished, NoCell, Step, Turn, View
from rlm_worker.journal import NodeJournal
from rlm_worker.progress import advice


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


class CellsDriver:
    """Serves the cells of another job, in order: they run live, whatever they were answered then."""

    kind: DriverKind = "recording"

    def __init__(self, cells: tuple[str, ...]) -> None:
        self._cells = cells

    async def next(self, view: View) -> Turn:
        index = view.iteration - 1
        return Cell(code=self._cells[index]) if index < len(self._cells) else Finished()


def notices_at(journal: NodeJournal, iteration: int) -> tuple[str, ...]:
    """What this iteration is told beside the history: that it turns in a circle, and what the operator asks."""
    found = journal.findings.get(iteration - 1)
    recorded = journal.iterations.get(iteration)
    told = (advice(found),) if found is not None and found.action == "steered" else ()
    asked = recorded.steers if recorded else []
    return (*told, *(f"The operator asks: {steer.text}" for steer in asked))


def recorded_step(journal: NodeJournal, iteration: int) -> Step | None:
    """A finished iteration of an earlier attempt. The figures it was asked with are not in the record."""
    recorded = journal.at(iteration)
    said = recorded.asked.text if recorded.asked else ""
    turn: Cell | NoCell
    if recorded.rejected is not None:
        turn = NoCell(reason=recorded.rejected.reason, text=said)
    elif recorded.proposed is not None and recorded.finished is not None:
        turn = Cell(code=recorded.proposed.code, reasoning=recorded.proposed.reasoning)
    else:
        return None
    return Step(
        iteration=iteration,
        turn=turn,
        said=said,
        outcome=recorded.finished,
        notices=notices_at(journal, iteration),
    )
