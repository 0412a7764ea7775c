"""A playbook writes the cells: a person's program, cell by cell, under the same sandbox, budget and trace as a model's."""

from rlm_worker.drivers.driver import Cell, DriverKind, Finished, Turn, View
from rlm_worker.drivers.playbook_format import parse


class PlaybookDriver:
    """Serves the cells of one playbook in order."""

    kind: DriverKind = "playbook"

    def __init__(self, source: str) -> None:
        self._cells = parse(source).cells

    async def next(self, view: View) -> Turn:
        index = view.iteration - 1
        if index >= len(self._cells):
            return Finished()
        cell = self._cells[index]
        return Cell(code=cell.code, title=cell.title, reasoning=cell.title)

    def line_of(self, iteration: int, line: int | None) -> int | None:
        """The line of the file that is this line of a cell."""
        if line is None or not 0 < iteration <= len(self._cells):
            return None
        return self._cells[iteration - 1].first_line + line - 1
