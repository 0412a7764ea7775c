"""Reads a model's turn: exactly one cell, or the reason why there is none. Never raises, whatever the text."""

import re
from dataclasses import dataclass

from rlm_worker.drivers.driver import Cell, NoCell

#: Possessive, so that no answer, however odd, costs more than its length.
_OPENING = re.compile(
    r"(?P<indent>[ \t]*+)(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<language>[\w+-]*+)(?P<rest>.*+)"
)
_PYTHON = frozenset({"", "python", "py", "python3", "repl", "ipython"})


@dataclass
class _Block:
    """A fenced block while its lines are read."""

    fence: str
    indent: int
    language: str
    lines: list[str]

    def closes(self, line: str) -> bool:
        mark = line.strip(" \t")
        return len(mark) >= len(self.fence) and not mark.strip(self.fence[0])

    def take(self, line: str) -> None:
        """Keep a line, without the indentation that the whole block has."""
        margin = len(line) - len(line.lstrip(" \t"))
        self.lines.append(line[min(margin, self.indent) :])

    @property
    def code(self) -> str:
        return "\n".join(self.lines)


def read_turn(text: str) -> Cell | NoCell:
    """The cell in this answer. Several blocks are refused: what the first prints may change the second."""
    blocks, prose = _split(text)
    cells = [block.code for block in blocks if block.language in _PYTHON and block.code.strip()]
    if not cells:
        return NoCell(reason=_why_none(text, blocks), text=text)
    if len(cells) > 1:
        return NoCell(
            reason=f"your turn has {len(cells)} code blocks and none was run: write one ```python block per turn",
            text=text,
        )
    return Cell(code=cells[0].rstrip() + "\n", reasoning=prose)


def _split(text: str) -> tuple[list[_Block], str]:
    """Fenced blocks and the text around them. A block that is not closed goes to the end."""
    blocks: list[_Block] = []
    prose: list[str] = []
    open_: _Block | None = None
    for line in text.replace("\r\n", "\n").split("\n"):
        if open_ is not None:
            if open_.closes(line):
                open_ = None
            else:
                open_.take(line)
        elif (opening := _opening(line)) is not None:
            open_ = opening
            blocks.append(opening)
        else:
            prose.append(line)
    return blocks, "\n".join(prose).strip()


def _opening(line: str) -> _Block | None:
    found = _OPENING.match(line)
    if found is None or (found["fence"][0] == "`" and "`" in found["rest"]):
        return None
    return _Block(found["fence"], len(found["indent"]), found["language"].lower(), [])


def _why_none(text: str, blocks: list[_Block]) -> str:
    if not text.strip():
        return "your turn was empty: write one ```python block"
    if blocks:
        languages = ", ".join(sorted({block.language or "empty" for block in blocks}))
        return f"your turn has no Python block (found: {languages}): write one ```python block"
    return "your turn has no code: only a ```python block is run. To end the job, call SUBMIT(...) in one"
