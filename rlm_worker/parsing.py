"""Reads a model's turn: one cell, or the reason why there is none. Never raises, whatever the text."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from rlm_worker.calling import code_of_call
from rlm_worker.drivers.driver import Cell, NoCell

#: Possessive, so that no answer, however odd, costs more than its length.
_OPENING = re.compile(
    r"(?P<indent>[ \t]*+)(?P<fence>`{3,}+|~{3,}+)[ \t]*+(?P<language>[\w+-]*+)(?P<rest>.*+)"
)
_PYTHON = frozenset({"python", "py", "python3", "repl", "ipython", "tool_code"})
#: Thoughts that some models write into their answer, and the mark that ends them where the opening one is left out.
_THOUGHTS = re.compile(
    r"\s*+<(?P<tag>think|thinking|thought|reasoning)>.*?(?:</(?P=tag)>|\Z)", re.DOTALL | re.IGNORECASE
)
_END_OF_THOUGHT = re.compile(r"</(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_FENCE_LINE = re.compile(r"^[ \t]*+(?:`{3}|~{3})", re.MULTILINE)
#: Statements that only a program has; a bare name or a sentence may happen to be an expression.
_PROSE = (
    *(ast.Name, ast.Constant, ast.Tuple, ast.Attribute, ast.BinOp, ast.BoolOp, ast.Compare, ast.UnaryOp),
    *(ast.Dict, ast.List, ast.Set),
)
_BARE_CHARS = 20_000
#: Ends of a block that are tried when what stands before the first is no Python.
_ENDS_TRIED = 8
_UNSEEN = "\ufeff\u200b\u2060"


@dataclass
class _Block:
    """A fenced block while its lines are read."""

    fence: str
    indent: int
    language: str
    #: The number of its first line in the answer.
    first: int
    lines: list[str]
    is_closed: bool = False

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
    if cells and not (cells[0] is blocks[0] and _may_be_a_call(cells[0])):
        return Cell(code=_whole(cells[0], _lines(said)).rstrip() + "\n", reasoning=prose)
    if not blocks and _is_program(said):
        return Cell(code=said.strip() + "\n")
    called = code_of_call(blocks[0].code if blocks else said)
    if called is not None:
        return Cell(code=called.strip() + "\n", reasoning=prose if blocks else "")
    if cells:
        return Cell(code=cells[0].code.rstrip() + "\n", reasoning=prose)
    return NoCell(reason=_why_none(said, blocks), text=text)


def remark(text: str) -> str:
    """What to say of a turn beside what its cell did; empty for a turn as it should be."""
    said = without_thoughts(text)
    blocks, lines = _split(said)[0], _lines(said)
    cells = _cells(blocks)
    end = cells[0].first + _whole(cells[0], lines).count("\n") if cells else 0
    count = 1 + sum(block.first > end and _may_run(block) for block in blocks)
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


def _cells(blocks: list[_Block]) -> list[_Block]:
    """The blocks that may be meant to run: those said to be Python, or else those of which nothing is said."""
    written = [block for block in blocks if _may_run(block)]
    return [block for block in written if block.language] or written


def _may_run(block: _Block) -> bool:
    return block.language in (_PYTHON | {""}) and bool(block.code.strip())


def _may_be_a_call(block: _Block) -> bool:
    return not block.language and block.code.lstrip()[:1] in ("{", "<")


def _whole(block: _Block, lines: list[str]) -> str:
    """The code of a block up to where its author meant it to end.

    A fence may be part of a text in it, or have more beside it: the first end that leaves Python counts, else the plain one.
    """
    if _is_python(block.code):
        return block.code
    for end in _ends(block, lines):
        other = _Block(block.fence, block.indent, block.language, block.first, [])
        for line in lines[block.first : end]:
            other.take(line)
        code = other.code
        code = code[: -len(block.fence)] if not block.is_closed and code.endswith(block.fence) else code
        if code.strip() and _is_python(code):
            return code
    return block.code


def _ends(block: _Block, lines: list[str]) -> Iterator[int]:
    """Where the block may end too: at later fences if it is closed, else at lines that go on after their fence, or at the end."""
    after = block.first + (len(block.lines) + 1 if block.is_closed else 0)
    tried = 0
    for number in range(after, len(lines)):
        mark = lines[number].strip(" \t")
        if block.closes(lines[number]) if block.is_closed else mark.startswith(block.fence):
            yield number
            tried += 1
            if tried == _ENDS_TRIED:
                return
    if not block.is_closed:
        yield block.first + len("\n".join(lines[block.first :]).rstrip().split("\n"))


def _is_python(code: str) -> bool:
    if len(code) > _BARE_CHARS:
        return True
    try:
        compile(code, "turn", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


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
    for number, line in enumerate(_lines(text)):
        if open_ is not None:
            if open_.closes(line):
                open_.is_closed = True
                open_ = None
            else:
                open_.take(line)
        elif (opening := _opening(line, number)) is not None:
            open_ = opening
            blocks.append(opening)
        else:
            prose.append(line)
    return blocks, "\n".join(prose).strip()


def _lines(text: str) -> list[str]:
    return text.lstrip(_UNSEEN).replace("\r\n", "\n").split("\n")


def _opening(line: str, number: int) -> _Block | None:
    found = _OPENING.match(line)
    if found is None or (found["fence"][0] == "`" and "`" in found["rest"]):
        return None
    return _Block(found["fence"], len(found["indent"]), found["language"].lower(), number + 1, [])


def _why_none(text: str, blocks: list[_Block]) -> str:
    if not text.strip():
        return "your turn was empty: write one ```python block"
    if blocks:
        languages = ", ".join(sorted({block.language or "empty" for block in blocks}))
        return f"your turn has no Python block (found: {languages}): write one ```python block"
    return "your turn has no code: only a ```python block is run. To end the job, call SUBMIT(...) in one"
