"""A recording writes the cells: turns come from the journal of the same job, so resume and replay cost no model call."""

from rlm_worker.drivers.driver import Cell, DriverKind, Finished, NoCell, Step, Turn, View
from rlm_worker.journal import NodeJournal, Recorded


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


def steer_notices(recorded: Recorded | None) -> tuple[str, ...]:
    """What the operator asked at this iteration, in the words of the prompt."""
    return tuple(f"The operator asks: {steer.text}" for steer in recorded.steers) if recorded else ()


def recorded_step(recorded: Recorded) -> Step | None:
    """A finished iteration of an earlier attempt. The figures it was asked with are not in the record."""
    said = recorded.asked.text if recorded.asked else ""
    turn: Cell | NoCell
    if recorded.rejected is not None:
        turn = NoCell(reason=recorded.rejected.reason, text=said)
    elif recorded.proposed is not None and recorded.finished is not None:
        turn = Cell(code=recorded.proposed.code, reasoning=recorded.proposed.reasoning)
    else:
        return None
    return Step(
        iteration=recorded.iteration,
        turn=turn,
        said=said,
        outcome=recorded.finished,
        notices=steer_notices(recorded),
    )
