"""Reads a model's turn: one cell, or the reason why there is none. Never raises, whatever the text."""

import ast
import re
from dataclasses import dataclass

from rlm_worker.drivers.driver import Cell, NoCell

#: Possessive, so that no answer, however odd, costs more than its length.
_OPENING = re.compile(
    r"(?P<indent>[ \t]*+)(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<language>[\w+-]*+)(?P<rest>.*+)"
)
_PYTHON = frozenset({"", "python", "py", "python3", "repl", "ipython"})
#: Thoughts that some models write into their answer, and the mark that ends them where the opening one is left out.
_THOUGHTS = re.compile(
    r"\s*+<(?P<tag>think|thinking|thought|reasoning)>.*?(?:</(?P=tag)>|\Z)", re.DOTALL | re.IGNORECASE
)
_END_OF_THOUGHT = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_FENCE_LINE = re.compile(r"^[ \t]*+(?:`{3}|~{3})", re.MULTILINE)
#: Statements that only a program has; a bare name or a sentence may happen to be an expression.
_PROSE = (ast.Name, ast.Constant, ast.Tuple, ast.Attribute, ast.BinOp, ast.BoolOp, ast.Compare, ast.UnaryOp)
_BARE_CHARS = 20_000


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
    """The cell in this answer. Of several blocks the first is the cell: what it prints may change the others."""
    said = without_thoughts(text)
    blocks, prose = _split(said)
    cells = _cells(blocks)
    if cells:
        return Cell(code=cells[0].rstrip() + "\n", reasoning=prose)
    if not blocks and _is_program(said):
        return Cell(code=said.strip() + "\n")
    return NoCell(reason=_why_none(said, blocks), text=text)


def remark(text: str) -> str:
    """What to say of a turn beside what its cell did; empty for a turn as it should be."""
    count = len(_cells(_split(without_thoughts(text))[0]))
    if count < 2:
        return ""
    return f"Your turn had {count} code blocks: only the first was run. Write one per turn."


def without_thoughts(text: str) -> str:
    """The answer without thoughts before it. Inside the answer nothing is taken out: code may speak of such marks."""
    while (thought := _THOUGHTS.match(text)) is not None:
        text = text[thought.end() :]
    fence = _FENCE_LINE.search(text)
    ends = list(_END_OF_THOUGHT.finditer(text, 0, fence.start() if fence else len(text)))
    return text[ends[-1].end() :] if ends else text


def _cells(blocks: list[_Block]) -> list[str]:
    return [block.code for block in blocks if block.language in _PYTHON and block.code.strip()]


def _is_program(text: str) -> bool:
    """Whether an answer without a fence is Python as a whole."""
    if not text.strip() or len(text) > _BARE_CHARS:
        return False
    try:
        # Compiled, not only parsed, so that await at the top is understood; nothing of it is run.
        tree = compile(text.strip(), "turn", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    assert isinstance(tree, ast.Module)
    return any(not (isinstance(s, ast.Expr) and isinstance(s.value, _PROSE)) for s in tree.body)


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
