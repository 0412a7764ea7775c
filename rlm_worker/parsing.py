"""Reads a model's turn: exactly one cell, or the reason why there is none. Never raises, whatever the text."""

import re

from rlm_worker.drivers.driver import Cell, NoCell

_FENCE = re.compile(
    r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
_PYTHON = frozenset({"", "python", "py", "python3", "repl", "ipython"})


def read_turn(text: str) -> Cell | NoCell:
    """The cell in this answer. Several blocks are refused: what the first prints may change the second."""
    blocks = [(found.group(2).lower(), found.group(3)) for found in _FENCE.finditer(text)]
    cells = [body for language, body in blocks if language in _PYTHON and body.strip()]
    if not cells:
        return NoCell(reason=_why_none(text, blocks), text=text)
    if len(cells) > 1:
        return NoCell(
            reason=f"your turn has {len(cells)} code blocks and none was run: write one ```python block per turn",
            text=text,
        )
    reasoning = _FENCE.sub("", text).strip()
    return Cell(code=cells[0].rstrip() + "\n", reasoning=reasoning)


def _why_none(text: str, blocks: list[tuple[str, str]]) -> str:
    if not text.strip():
        return "your turn was empty: write one ```python block"
    if blocks:
        languages = ", ".join(sorted({language or "empty" for language, _ in blocks}))
        return f"your turn has no Python block (found: {languages}): write one ```python block"
    return "your turn has no code: only a ```python block is run. To end the job, call SUBMIT(...) in one"
