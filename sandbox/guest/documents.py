"""One document of the evidence: read in pieces, every piece with its address. Knows no other document."""

import hashlib
import os
import re
from collections.abc import Iterator
from itertools import islice
from typing import Literal, TypeAlias, overload

from sandbox.guest import tables
from sandbox.guest.content import Data, LineIndex, content, cut, decode, piece_end, resume
from sandbox.guest.facts import UNTOLD, Facts
from sandbox.guest.search import Hit, Hits, compile_pattern
from sandbox.guest.tables import Row

Pattern: TypeAlias = str | bytes | re.Pattern[str] | re.Pattern[bytes]
BytesPattern: TypeAlias = re.Pattern[bytes]

_MAX_TEXT = 64 << 20
_BINARY_PROBE = 8192


class TooLarge(ValueError):
    """More text was asked for than fits in memory; the message says what to use instead."""


class Line(str):
    """A line of text that knows where it stands: a str with `number`, `citation` and `document`."""

    __slots__ = ("document", "number")
    document: "Document"
    number: int

    @property
    def text(self) -> str:
        """The line as a plain str."""
        return str(self)

    @property
    def citation(self) -> str:
        """Its address, as in `app.log:10`."""
        return self.document.cite(self.number)


class Chunk(str):
    """A run of lines that knows where it stands: a str with `first`, `last`, `citation`, `document`, and bytes `start` to `end`."""

    __slots__ = ("document", "end", "first", "last", "start")
    document: "Document"
    first: int
    last: int
    start: int
    end: int

    def stands_as(self, other: "Chunk") -> None:
        """Take over the place of another chunk."""
        self.document, self.first, self.last = other.document, other.first, other.last
        self.start, self.end = other.start, other.end

    @property
    def text(self) -> str:
        """The chunk as a plain str."""
        return str(self)

    @property
    def citation(self) -> str:
        """Its address, as in `app.log:10-20`."""
        return self.document.cite(self.first, self.last)

    def lines(self) -> Iterator[Line]:
        """Its lines, each with its own citation."""
        return self.document.lines(self.first, self.last + 1)


class Page(Chunk):
    """One page of a document: a Chunk with `number`, whose citation is the page's."""

    __slots__ = ("number",)
    number: int

    @property
    def citation(self) -> str:
        """Its address, as in `report.pdf#page=3`."""
        return f"{self.document.name}#page={self.number}"


class Document:
    """One file of evidence. It is read where you look, never whole unless you ask for `.text`.

    Lines count from 1. `doc[10]` is line 10 and `doc[10:20]` the lines 10 to 19 as one Chunk; `doc[-5:]` the last five.
    Of a PDF, a Word file, a workbook or a web page you read the text form; `.raw` is the file itself. `.kind`, `.encoding`
    and `.note` say what is known of it; tables have `.rows()`, JSON Lines `.records()`, paged documents `.pages()`.
    """

    __slots__ = ("_facts", "_index", "_original", "_path", "_sha256", "name")

    def __init__(self, name: str, path: str, facts: Facts = UNTOLD) -> None:
        self.name = name
        self._original = path
        self._path = facts.text or path
        self._facts = facts
        self._sha256 = ""
        self._index: LineIndex | None = None

    @property
    def kind(self) -> str:
        """Media type, as in `text/csv`."""
        return self._facts.kind or ("application/octet-stream" if self.is_binary else "text/plain")

    @property
    def encoding(self) -> str:
        """How its bytes are read as text."""
        return self._facts.encoding or "utf-8"

    @property
    def note(self) -> str:
        """What the text form leaves out, or why there is none."""
        return self._facts.note

    @property
    def delimiter(self) -> str:
        """What separates the fields of a table, when it was found out."""
        return self._facts.delimiter

    @property
    def sheets(self) -> tuple[str, ...]:
        """Names of a workbook's sheets."""
        return self._facts.sheets

    @property
    def row_count(self) -> int | None:
        """How many rows there are, where that is known without counting."""
        return self._facts.rows

    @property
    def page_count(self) -> int | None:
        """How many pages there are, of a document that has pages."""
        return len(self._facts.pages) or None

    @property
    def is_converted(self) -> bool:
        """Whether what you read is a text form of the file."""
        return self._path != self._original

    @property
    def raw(self) -> Data:
        """The bytes of the file itself, also of one that is read in its text form."""
        return content(self._original)

    @property
    def raw_size(self) -> int:
        """Size of the file itself in bytes."""
        return os.lstat(self._original).st_size

    @property
    def sha256(self) -> str:
        """The hash of the file itself, read once when you first ask."""
        if not self._sha256:
            self._sha256 = hashlib.sha256(self.raw).hexdigest()
        return self._sha256

    @property
    def content_citation(self) -> str:
        """The address of the whole document with this very content, as in `report.pdf#sha256=…`."""
        return f"{self.name}#sha256={self.sha256}"

    @property
    def bytes(self) -> Data:
        """The content without a copy: `bytes` of a small file, an `mmap` of a large one. Both slice, find, and go into `re`."""
        return content(self._path)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return os.lstat(self._path).st_size

    @property
    def is_binary(self) -> bool:
        """Whether a NUL byte stands in the first 8 KB."""
        return b"\0" in self.bytes[:_BINARY_PROBE]

    @property
    def text(self) -> str:
        """The whole text. Refused above 64 MB: use search(), lines() or chunks() there."""
        if self.size > _MAX_TEXT:
            raise TooLarge(
                f"{self.name} has {self.size:,} bytes, too many for one str: use .search(regex), .lines(), .chunks() "
                "or a slice such as doc[1:100]; .bytes searches it without a copy"
            )
        return self.decode(0, self.size)

    def decode(self, start: int, end: int) -> str:
        """The text between two byte offsets."""
        return decode(self.bytes[start:end], self.encoding)

    @property
    def line_count(self) -> int:
        """How many lines there are; a last line without a newline counts."""
        data = self.bytes
        if not data:
            return 0
        return self._lines_index().newlines_before(data, len(data) - 1) + 1

    def line_at(self, position: int) -> int:
        """Number of the line that holds a byte offset."""
        data = self.bytes
        return self._lines_index().newlines_before(data, max(0, min(position, len(data) - 1))) + 1

    def line_around(self, position: int, *, window: int) -> str:
        """The line that holds a byte offset, with at most `window` bytes kept on either side of it."""
        data = self.bytes
        low, high = max(0, position - window), min(len(data), position + window)
        start = data.rfind(b"\n", low, position) + 1
        end = data.find(b"\n", position, high)
        opening = "…" if not start and low else ""
        closing = "…" if end < 0 and high < len(data) else ""
        body = decode(data[start or low : high if end < 0 else end], self.encoding)
        return f"{opening}{body.removesuffix(chr(13))}{closing}"

    def cite(self, line: int, end: int | None = None) -> str:
        """The address of a line or a range of lines: `stdlib/os.py:10`, `stdlib/os.py:10-20`."""
        return f"{self.name}:{line}" if end is None or end <= line else f"{self.name}:{line}-{end}"

    def cite_bytes(self, start: int, end: int) -> str:
        """The address of a range of bytes of what you read, without the one at `end`: `app.log@1024-2048`."""
        return f"{self.name}@{start}-{end}"

    def rows(self, *, header: bool = True) -> Iterator[Row]:
        """The rows of a csv, tsv or workbook as dicts by the names in the first row, each with `number` and `citation`."""
        return tables.rows(self, header=header)

    def records(self, *, strict: bool = True) -> Iterator[Row]:
        """The values of JSON Lines as dicts, each with `number` and `citation`; strict=False leaves broken lines out."""
        return tables.records(self, strict=strict)

    def pages(self) -> Iterator[Page]:
        """The pages of a document that has them."""
        return (self.page(number) for number in range(1, len(self._facts.pages) + 1))

    def page(self, number: int) -> Page:
        """One page by its number, from 1."""
        starts = self._facts.pages
        if not 1 <= number <= len(starts):
            raise IndexError(f"{self.name} has {len(starts)} pages, there is no page {number}")
        stop = starts[number] if number < len(starts) else None
        chunk = self._chunk_of_lines(starts[number - 1], stop)
        page = Page(chunk)
        page.stands_as(chunk)
        page.number = number
        return page

    def lines(self, start: int = 1, stop: int | None = None) -> Iterator[Line]:
        """The lines from number `start` up to, not including, `stop`. Each is a str with `number` and `citation`."""
        if start < 1:
            raise ValueError(f"lines count from 1, not {start}")
        wanted = None if stop is None else max(0, stop - start)
        return islice(self._lines_from(start), wanted)

    def _lines_from(self, number: int) -> Iterator[Line]:
        data = self.bytes
        position = 0 if number == 1 else self._lines_index().start_of(data, number)
        while position is not None and position < len(data):
            end = piece_end(data, position)
            for text in decode(data[position:end], self.encoding).removesuffix("\n").split("\n"):
                line = Line(text.removesuffix("\r"))
                line.document = self
                line.number = number
                yield line
                number += 1
            position = end

    def line(self, number: int) -> Line:
        """One line by its number."""
        for line in self.lines(number, number + 1):
            return line
        raise IndexError(f"{self.name} has {self.line_count:,} lines, there is no line {number:,}")

    @overload
    def __getitem__(self, index: int) -> Line: ...
    @overload
    def __getitem__(self, index: slice) -> Chunk: ...
    def __getitem__(self, index: int | slice) -> Line | Chunk:
        if isinstance(index, int):
            return self.line(index + self.line_count + 1 if index < 0 else index)
        if index.step not in (None, 1):
            raise ValueError("lines are sliced without a step")
        first = self._bound(index.start, default=1)
        stop = self._bound(index.stop, default=None)
        return self._chunk_of_lines(first or 1, stop)

    def _bound(self, value: int | None, *, default: int | None) -> int | None:
        if value is None:
            return default
        return max(1, value + self.line_count + 1) if value < 0 else max(1, value)

    def _chunk_of_lines(self, first: int, stop: int | None) -> Chunk:
        data, index = self.bytes, self._lines_index()
        start = index.start_of(data, first)
        if start is None or (stop is not None and stop <= first):
            return self.between(len(data), len(data))
        end = len(data) if stop is None else index.start_of(data, stop)
        return self.between(start, len(data) if end is None else end)

    def between(self, start: int, end: int) -> Chunk:
        """The text between two byte offsets, as a Chunk of the lines on which it stands."""
        if end - start > _MAX_TEXT:
            raise TooLarge(f"{end - start:,} bytes of {self.name} are too many for one str: take fewer lines")
        chunk = Chunk(self.decode(start, end).removesuffix("\n").removesuffix("\r"))
        chunk.document = self
        chunk.first = self.line_at(start)
        chunk.last = self.line_at(max(start, end - 1))
        chunk.start, chunk.end = start, end
        return chunk

    def head(self, n: int = 10) -> Chunk:
        """The first n lines."""
        return self[1 : n + 1]

    def tail(self, n: int = 10) -> Chunk:
        """The last n lines."""
        return self[max(1, self.line_count - n + 1) :] if n > 0 else self[1:1]

    def chunks(
        self, chars: int = 8000, overlap: int = 200, by: Literal["lines", "chars"] = "lines"
    ) -> Iterator[Chunk]:
        """Pieces of at most `chars` (counted as UTF-8 bytes), each repeating the end of the one before.

        by="lines" cuts between lines where it can; by="chars" cuts anywhere between characters.
        """
        if chars < 4 or not 0 <= overlap < chars or by not in ("lines", "chars"):
            raise ValueError(
                f"need chars >= 4, 0 <= overlap < chars, by 'lines' or 'chars': got {chars}, {overlap}, {by!r}"
            )
        return self._chunks(chars, overlap, whole_lines=by == "lines")

    def _chunks(self, size: int, overlap: int, *, whole_lines: bool) -> Iterator[Chunk]:
        data = self.bytes
        start, end = 0, cut(data, 0, size, whole_lines=whole_lines)
        while start < len(data):
            yield self.between(start, end)
            start = max(start, resume(data, end - overlap, end, whole_lines=whole_lines))
            following = cut(data, start, start + size, whole_lines=whole_lines)
            if following <= end:
                # The overlap alone fills the next piece: it would say nothing new.
                start, following = end, cut(data, end, end + size, whole_lines=whole_lines)
            end = following

    def search(self, regex: Pattern, *, flags: int = 0, limit: int | None = None) -> Hits:
        r"""Every match of a regular expression, found while you iterate.

        A pattern that begins with a literal is some 25 times faster than one that begins with a class or `(?i)`.
        `^` and `$` match at lines; classes such as \w know ASCII only.
        """
        pattern = compile_pattern(regex, flags, self.encoding)
        return Hits(lambda: islice(self.scan(pattern), limit), described=f"{regex!r} in {self.name}")

    def scan(self, pattern: BytesPattern) -> Iterator[Hit]:
        """Every match of a compiled bytes pattern."""
        return (Hit(self, pattern, match.regs) for match in pattern.finditer(self.bytes))

    def count(self, regex: Pattern, *, flags: int = 0) -> int:
        """How often a regular expression matches."""
        return sum(1 for _ in compile_pattern(regex, flags, self.encoding).finditer(self.bytes))

    def _lines_index(self) -> LineIndex:
        if self._index is None:
            self._index = LineIndex()
        return self._index

    def __len__(self) -> int:
        return self.line_count

    def __iter__(self) -> Iterator[Line]:
        return self.lines()

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<Document {self.name} ({self.size:,} bytes)>"
