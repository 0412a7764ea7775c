r"""The text of a playbook: TOML in a comment block, then `# %%` cells. Reads it and runs nothing.

# ---
# name = "audit_comments"
# title = "Comments that admit a bug"
# output = "summary: str, found: int"
# budget = "subcalls=60,time=20m"
# sub_model = "openai:gpt-5.4-mini"
# [params.limit]
# default = 24
# description = "how many are classified"
# ---

# %% Find them
hits = list(evidence.search("XXX"))
"""

import ast
import json
import re
import tomllib
from itertools import pairwise
from typing import Annotated, Self

from pydantic import Field, JsonValue, ValidationError, field_validator, model_validator

from rlm_worker.contracts.base import Contract, JsonObject, Positive
from rlm_worker.contracts.signature import SignatureError, fields_schema

_FENCE = "# ---"
_CELL = re.compile(r"#\s?%%(?:\s+(?P<title>.*\S))?\s*$")
_TOML_PLACE = re.compile(r"\(at line (\d+), column \d+\)")


class PlaybookError(ValueError):
    """The playbook cannot be read; the message names the line and what is wrong there."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


class PlaybookParam(Contract):
    """One parameter that a caller may set."""

    default: JsonValue = None
    description: str = ""


class PlaybookMeta(Contract):
    """The front matter: what the playbook is, what it gives, what it may spend."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    title: Annotated[str, Field(min_length=1, max_length=200)]
    description: str = ""
    #: Fields such as "summary: str, places: list[Citation]".
    output: str | None = None
    #: The same as the text of a JSON Schema, where fields are tables themselves.
    output_schema: str | None = None
    budget: Annotated[str, Field(pattern=r"^\s*([a-z_]+=[^,\s]+\s*(,\s*|$))*$")] = ""
    #: Who answers predict(): a provider's model or an embedded one. No URL: a key could follow it to a stranger's server.
    sub_model: Annotated[str, Field(pattern=r"^(embedded|[a-z][a-z0-9_-]*:[^/\s]\S*)$")] | None = None
    params: dict[str, PlaybookParam] = Field(default_factory=dict)

    @field_validator("output")
    @classmethod
    def _readable(cls, output: str | None) -> str | None:
        if output is not None:
            fields_schema(output)
        return output

    @field_validator("output_schema")
    @classmethod
    def _usable(cls, text: str | None) -> str | None:
        if text is not None:
            _schema_of(text)
        return text

    @model_validator(mode="after")
    def _one_schema(self) -> Self:
        if (self.output is None) == (self.output_schema is None):
            raise ValueError("give exactly one of output and output_schema")
        return self

    def schema_of_output(self) -> JsonObject:
        """JSON Schema of what the playbook submits."""
        if self.output is not None:
            return fields_schema(self.output)
        return _schema_of(self.output_schema or "")

    def defaults(self) -> JsonObject:
        """The parameters as they are when nobody sets them."""
        return {name: param.default for name, param in self.params.items()}


def _schema_of(text: str) -> JsonObject:
    schema = json.loads(text)
    if not isinstance(schema, dict) or schema.get("type") != "object" or not schema.get("properties"):
        raise SignatureError("output_schema must be a JSON Schema of an object with properties")
    return schema


class Cell(Contract):
    """One cell: its code begins on line `first_line` of the file."""

    title: str
    code: str
    first_line: Positive

    @property
    def padded(self) -> str:
        """The code after as many empty lines as stand before it in the file: tracebacks then name the file's lines."""
        return "\n" * (self.first_line - 1) + self.code


class PlaybookText(Contract):
    """A playbook that can be read: its front matter, where it has one, and its cells, in order."""

    meta: PlaybookMeta | None
    cells: tuple[Cell, ...]


def parse(text: str) -> PlaybookText:
    """Read a playbook, or raise PlaybookError at the first line that is wrong. Front matter may be left out."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    meta, after = _front_matter(lines)
    cells = tuple(_cells(lines, after=after))
    if not cells:
        raise PlaybookError(len(lines), "there is no code: begin a cell with a line '# %% title'")
    for cell in cells:
        _check_syntax(cell)
    return PlaybookText(meta=meta, cells=cells)


def _front_matter(lines: list[str]) -> tuple[PlaybookMeta | None, int]:
    """The front matter, if the file begins with it, and the index of the first line after it."""
    opening = next((number for number, line in enumerate(lines) if line.strip()), 0)
    if lines[opening].startswith("#!"):
        opening += 1
    if opening >= len(lines) or lines[opening].rstrip() != _FENCE:
        return None, 0
    closing = _closing_fence(lines, opening)
    return _meta(lines[opening + 1 : closing], first_line=opening + 2), closing + 1


def _closing_fence(lines: list[str], opening: int) -> int:
    for number in range(opening + 1, len(lines)):
        if lines[number].rstrip() == _FENCE:
            return number
        if not lines[number].startswith("#"):
            raise PlaybookError(
                number + 1,
                f"the front matter is not closed: expected '# …' or {_FENCE!r}, found {lines[number]!r}",
            )
    raise PlaybookError(len(lines), f"the front matter is not closed by a line {_FENCE!r}")


def _meta(lines: list[str], *, first_line: int) -> PlaybookMeta:
    source = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)
    try:
        table = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        place = _TOML_PLACE.search(str(error))
        line = first_line + (int(place[1]) if place else len(lines)) - 1
        raise PlaybookError(line, f"the front matter is not TOML: {error}") from None
    try:
        return PlaybookMeta.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        line = _line_of_key(lines, first["loc"], first_line=first_line)
        raise PlaybookError(line, f"front matter{' ' if key else ''}{key}: {first['msg']}") from None


def _line_of_key(lines: list[str], place: tuple[int | str, ...], *, first_line: int) -> int:
    """The line that sets the key, or its table; else the first line of the front matter."""
    for key in reversed(place):
        spelled = re.compile(rf"#\s*(\[.*\b{re.escape(str(key))}\b.*\]|{re.escape(str(key))}\s*=)")
        for number, line in enumerate(lines):
            if spelled.match(line):
                return first_line + number
    return first_line


def _cells(lines: list[str], *, after: int) -> list[Cell]:
    starts = [
        (number, found["title"] or "")
        for number in range(after, len(lines))
        if (found := _CELL.match(lines[number]))
    ]
    bounds = [(after - 1, ""), *starts, (len(lines), "")]
    cells = (
        _cell(lines, title=title, start=number + 1, stop=following)
        for (number, title), (following, _) in pairwise(bounds)
    )
    return [cell for cell in cells if cell is not None]


def _cell(lines: list[str], *, title: str, start: int, stop: int) -> Cell | None:
    while start < stop and not lines[start].strip():
        start += 1
    code = "\n".join(lines[start:stop]).rstrip()
    return Cell(title=title, code=code, first_line=start + 1) if code else None


def _check_syntax(cell: Cell) -> None:
    where = f"cell {cell.title!r}" if cell.title else "the cell"
    try:
        compile(cell.padded, "<playbook>", "exec", flags=ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except SyntaxError as error:
        raise PlaybookError(error.lineno or cell.first_line, f"{where} is not Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise PlaybookError(cell.first_line, f"{where} cannot be compiled: {error}") from None
