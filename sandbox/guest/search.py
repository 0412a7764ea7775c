"""Patterns and hits: a text pattern becomes a bytes pattern once, and every match gets its address. Opens no file."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    from sandbox.guest.documents import Chunk, Document

_PIECES = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|.", re.DOTALL)
_INLINE_IGNORE_CASE = re.compile(r"\(\?[aLmsux]*i")
#: A line may end in \r\n: its end is before the \r.
_LINE_END = r"(?=\r?$)"
_WINDOW = 1_000


class PatternError(ValueError):
    """The pattern cannot search bytes; the message says what to write instead."""


@lru_cache(maxsize=256)
def compile_pattern(
    pattern: "str | bytes | re.Pattern[str] | re.Pattern[bytes]", flags: int = 0, encoding: str = "utf-8"
) -> re.Pattern[bytes]:
    """Return the bytes pattern that finds what the text pattern means in an encoding; `^` and `$` work per line."""
    if isinstance(pattern, re.Pattern):
        flags |= pattern.flags & ~re.UNICODE
        pattern = pattern.pattern
    flags = (flags & ~re.UNICODE) | re.MULTILINE
    if isinstance(pattern, str):
        ignore_case = bool(flags & re.IGNORECASE or _INLINE_IGNORE_CASE.match(pattern))
        pattern = _as_bytes(pattern, ignore_case=ignore_case, encoding=encoding)
    try:
        return re.compile(pattern, flags)
    except re.error as error:
        raise PatternError(f"cannot read the pattern {pattern!r}: {error}") from None


def _as_bytes(pattern: str, *, ignore_case: bool, encoding: str) -> bytes:
    if pattern.isascii() and "$" not in pattern and "\\" not in pattern:
        return pattern.encode()
    parts: list[str] = []
    class_opened: int | None = None
    for piece in _PIECES.findall(pattern):
        char = _character(piece)
        if char is not None and not char.isascii():
            if class_opened is not None:
                raise PatternError(
                    f"{char!r} cannot stand in [...]: evidence is searched as bytes, write (?:{char}|…)"
                )
            parts.append(_alternatives(char, ignore_case=ignore_case))
            continue
        parts.append(_LINE_END if piece == "$" and class_opened is None else _written(piece, char))
        if piece == "[" and class_opened is None:
            class_opened = len(parts) - 1
        elif piece == "]" and class_opened is not None and not _first_in_class(parts[class_opened:-1]):
            class_opened = None
    return _encoded("".join(parts), encoding)


def _encoded(pattern: str, encoding: str) -> bytes:
    """A character that the encoding does not have matches nothing."""
    if encoding == "utf-8":
        return pattern.encode()
    return b"".join(char.encode(encoding, "ignore") or b"(?!)" for char in pattern)


def _written(piece: str, char: str | None) -> str:
    return piece if char is None or piece == char else re.escape(char)


def _first_in_class(since_opening: list[str]) -> bool:
    return since_opening in (["["], ["[", "^"])


def _character(piece: str) -> str | None:
    """The character that a piece of a pattern stands for, when it stands for exactly one."""
    if piece[0] != "\\" or len(piece) == 1:
        return piece
    _backslash, kind, digits = piece[0], piece[1], piece[2:]
    if digits:
        return chr(int(digits, 16))
    return None if kind.isascii() else kind


def _alternatives(char: str, *, ignore_case: bool) -> str:
    spellings = sorted({char, char.lower(), char.upper()}) if ignore_case else [char]
    return f"(?:{'|'.join(spellings)})"


class Hit:
    """One match: where it is (`citation`, `line`, `start`, `end`) and what it says (`match`, `groups`, `text`)."""

    __slots__ = ("document", "pattern", "spans")

    def __init__(
        self, document: "Document", pattern: re.Pattern[bytes], spans: tuple[tuple[int, int], ...]
    ) -> None:
        self.document = document
        self.pattern = pattern
        self.spans = spans

    @property
    def start(self) -> int:
        """Byte offset of the first byte of the match."""
        return self.spans[0][0]

    @property
    def end(self) -> int:
        """Byte offset after the last byte of the match."""
        return self.spans[0][1]

    @property
    def line(self) -> int:
        """Number of the line in which the match begins; lines count from 1."""
        return self.document.line_at(self.start)

    @property
    def citation(self) -> str:
        """The address of the line, as in `stdlib/os.py:10`."""
        return self.document.cite(self.line)

    @property
    def match(self) -> str:
        """The matched text."""
        return self.document.decode(*self.spans[0])

    @property
    def groups(self) -> tuple[str | None, ...]:
        """The texts of the pattern's groups; None for a group that took no part."""
        return tuple(self._span_text(span) for span in self.spans[1:])

    def group(self, key: int | str = 0) -> str | None:
        """The text of one group, by number or by name."""
        index = self.pattern.groupindex[key] if isinstance(key, str) else key
        return self._span_text(self.spans[index])

    def _span_text(self, span: tuple[int, int]) -> str | None:
        return None if span[0] < 0 else self.document.decode(*span)

    @property
    def text(self) -> str:
        """The whole line in which the match begins; of a very long line, what surrounds the match."""
        return self.document.line_around(self.start, window=_WINDOW)

    def context(self, before: int = 2, after: int = 2) -> "Chunk":
        """The line with its neighbours, as one Chunk with its own citation."""
        return self.document[max(1, self.line - before) : self.line + after + 1]

    def __str__(self) -> str:
        return f"{self.citation}: {self.text}"

    def __repr__(self) -> str:
        return f"<Hit {self!s}>"


class Hits:
    """The matches of one search, found while you iterate: loop over it, slice it, `list()` it, or `.count()`.

    Each loop searches anew, and only as far as it goes. It is true when there is at least one hit.
    """

    def __init__(self, scan: Callable[[], Iterator[Hit]], *, described: str) -> None:
        self._scan = scan
        self._described = described
        self._cursor: Iterator[Hit] | None = None

    def __iter__(self) -> Iterator[Hit]:
        return self._scan()

    def __next__(self) -> Hit:
        if self._cursor is None:
            self._cursor = self._scan()
        return next(self._cursor)

    def __bool__(self) -> bool:
        return next(self._scan(), None) is not None

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> list[Hit]: ...
    def __getitem__(self, index: int | slice) -> Hit | list[Hit]:
        if isinstance(index, slice):
            parts = (index.start, index.stop, index.step)
            if any(part is not None and part < 0 for part in parts):
                return list(self)[index]
            return list(islice(self, *parts))
        if index < 0:
            return list(self)[index]
        for hit in islice(self, index, None):
            return hit
        raise IndexError(f"there are not {index + 1} hits")

    def count(self) -> int:
        """How many hits there are."""
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<Hits of {self._described}; loop over it, slice it, or list() it>"
