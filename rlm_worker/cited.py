"""Evidence as it lies on disk, to look up what an address names: lines, bytes, pages, rows. Reads; follows no link out."""

import csv
import hashlib
import io
import json
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import sandbox
from rlm_worker.contracts import EvidenceRef
from rlm_worker.contracts.reading import INDEX, FileFacts, ReadingIndex

_BLOCK = 1 << 20
_MOST_TEXT = 16 << 20
_MAX_FIELD = 16 << 20
_TABLES = {"text/csv": ",", "text/tab-separated-values": "\t"}


class CitedEvidence:
    """Every document of a job that can be cited, by name."""

    def __init__(self, evidence: tuple[EvidenceRef, ...]) -> None:
        self._evidence = {ref.name: ref for ref in evidence}
        self._indexes: dict[str, ReadingIndex] = {}
        self._documents: dict[str, CitedDocument | None] = {}

    def meant(self, address: str) -> "tuple[CitedDocument, sandbox.Address] | None":
        """The document that an address names, and what of it is meant; None when there is none."""
        for meaning in sandbox.meanings_of(address):
            document = self._document(meaning.name)
            if document is not None:
                return document, meaning
        return None

    def _document(self, name: str) -> "CitedDocument | None":
        if name not in self._documents:
            self._documents[name] = self._find(name)
        return self._documents[name]

    def pdf_with(self, name: str, *, page: int) -> Path | None:
        """The file of a PDF that has this page; None when there is none."""
        found = self._file(name)
        if found is None:
            return None
        file, facts, kind = found
        return file if kind == "application/pdf" and 1 <= page <= len(facts.pages) else None

    def _find(self, name: str) -> "CitedDocument | None":
        found = self._file(name)
        if found is None:
            return None
        original, facts, kind = found
        ref = self._evidence[name.partition("/")[0]]
        read = original
        if facts.text and ref.reading is not None:
            read = Path(ref.reading.location) / facts.text
        return CitedDocument(read, facts, kind, original=original)

    def _file(self, name: str) -> tuple[Path, FileFacts, str] | None:
        """The file itself, and what is known of it."""
        root_name, _, rest = name.partition("/")
        ref = self._evidence.get(root_name)
        if ref is None or (ref.kind == "file") != (not rest):
            return None
        root = Path(ref.location)
        path = root / rest if rest else root
        try:
            inside, top = path.resolve(strict=True), root.resolve()
        except (OSError, ValueError, RuntimeError):  # a loop of links is a RuntimeError
            return None
        if not inside.is_file() or not inside.is_relative_to(top):
            return None
        below = inside.relative_to(top).as_posix() if rest else ""
        index = self._index(ref)
        return inside, index.facts_of(below), index.kind_of(below, name=ref.name)

    def _index(self, ref: EvidenceRef) -> ReadingIndex:
        if ref.reading is None:
            return ReadingIndex()
        if ref.name not in self._indexes:
            body = (Path(ref.reading.location) / INDEX).read_bytes()
            found = ReadingIndex.model_validate(json.loads(body.decode("utf-8", "surrogatepass")))
            self._indexes[ref.name] = found
        return self._indexes[ref.name]


class CitedDocument:
    """One document, in the form in which cells read it."""

    def __init__(self, path: Path, facts: FileFacts, kind: str, *, original: Path | None = None) -> None:
        self._path = path
        self._original = original or path
        self._facts = facts
        self._kind = kind
        self._encoding = facts.encoding or "utf-8"

    def holds(self, meant: sandbox.Address) -> bool:
        """Whether what an address means is there."""
        match meant.unit:
            case "line":
                return 1 <= meant.first <= meant.last <= max(1, self._lines)
            case "byte":
                return 0 <= meant.first < meant.last <= self._path.stat().st_size
            case "page":
                return 1 <= meant.first <= meant.last <= len(self._facts.pages)
            case "row" if self._kind in _TABLES:
                return 0 <= meant.first <= meant.last < self._row_count
            case "row":
                return 1 <= meant.first <= meant.last <= self._lines
            case _:
                return meant.unit == "whole" or meant.content == self._digest

    def texts_at(self, meant: sandbox.Address) -> list[str]:
        """What stands at an address that is there, in each way in which it can be quoted; nothing when it is too much."""
        match meant.unit:
            case "line":
                return self._lines_text(meant.first, meant.last)
            case "byte":
                return self._bytes_text(meant.first, meant.last)
            case "page":
                starts = self._facts.pages
                end = starts[meant.last] - 1 if meant.last < len(starts) else self._lines
                return self._lines_text(starts[meant.first - 1], end)
            case "row" if self._kind in _TABLES:
                return self._rows_text(meant.first, meant.last)
            case "row":
                return self._lines_text(meant.first, meant.last)
            case _:
                return self._bytes_text(0, self._path.stat().st_size)

    @cached_property
    def _digest(self) -> str:
        """Of the file itself, as it lies now."""
        with self._original.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    @cached_property
    def _newlines(self) -> "tuple[array[int], bool]":
        """How many newlines stand before each block, and whether the last line has none of its own. Counted once."""
        before, last = array("Q", [0]), b"\n"
        with self._path.open("rb") as file:
            while block := file.read(_BLOCK):
                before.append(before[-1] + block.count(b"\n"))
                last = block[-1:]
        return before, last != b"\n"

    @property
    def _lines(self) -> int:
        before, has_open_end = self._newlines
        return before[-1] + has_open_end

    @cached_property
    def _row_count(self) -> int:
        return sum(1 for _ in self._rows())

    def _rows(self) -> Iterator[list[str]]:
        """The rows of a table, its head first; counted as cells count them."""
        csv.field_size_limit(_MAX_FIELD)
        delimiter = self._facts.delimiter or _TABLES[self._kind]
        with self._path.open("rb") as file:
            text = io.TextIOWrapper(file, encoding=self._encoding, errors="replace", newline="\n")
            lines = (f"{line.removesuffix(chr(10)).removesuffix(chr(13))}\n" for line in text)
            try:
                yield from (row for row in csv.reader(lines, delimiter=delimiter) if row)
            except csv.Error:
                return

    def _rows_text(self, first: int, last: int) -> list[str]:
        chosen = [row for number, row in enumerate(self._rows()) if first <= number <= last]
        delimiter = self._facts.delimiter or _TABLES[self._kind]
        return ["\n".join(mark.join(row) for row in chosen) for mark in (delimiter, " ")]

    def _lines_text(self, first: int, last: int) -> list[str]:
        texts = self._bytes_text(self._start_of(first), self._start_of(last + 1))
        if texts and self._kind.endswith(("jsonl", "parquet", "spreadsheetml.sheet")):
            texts.append(" ".join(_strings(texts[0])))
        return texts

    def _start_of(self, line: int) -> int:
        """Byte offset where a line begins, or where the document ends."""
        before, _ = self._newlines
        missing = line - 1
        if missing > before[-1]:
            return self._path.stat().st_size
        block = max(0, bisect_left(before, missing) - 1)
        with self._path.open("rb") as file:
            file.seek(block * _BLOCK)
            content = file.read(_BLOCK)
        place = 0
        for _ in range(missing - before[block]):
            place = content.index(b"\n", place) + 1
        return block * _BLOCK + place

    def _bytes_text(self, start: int, end: int) -> list[str]:
        if end - start > _MOST_TEXT:
            return []
        with self._path.open("rb") as file:
            file.seek(start)
            return [file.read(end - start).decode(self._encoding, "replace")]


def _strings(lines: str) -> Iterator[str]:
    """The texts within JSON lines, without their escapes."""
    for line in lines.splitlines():
        try:
            waiting = [json.loads(line)]
        except (ValueError, RecursionError):
            continue
        while waiting:
            value = waiting.pop()
            if isinstance(value, dict):
                waiting.extend(reversed(value.values()))
            elif isinstance(value, list):
                waiting.extend(reversed(value))
            elif value is not None:
                yield str(value)
