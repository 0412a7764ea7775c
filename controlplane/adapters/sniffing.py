"""What a file is, by its name and the first of its bytes: media type, encoding, what separates its fields. Reads a little."""

import codecs
import csv
import os
from dataclasses import dataclass

from rlm_worker.contracts.reading import KINDS, UNKNOWN, FileFacts, suffix_of

#: Bytes looked at where a file begins; of a large one, in a few more places too.
HEAD = 16 << 10
_SPOT = 4 << 10
_SPOTS = 4

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MAGIC = (
    (b"%PDF-", "application/pdf"),
    (b"\x1f\x8b", "application/gzip"),
    (b"BZh", "application/x-bzip2"),
    (b"\xfd7zXZ\x00", "application/x-xz"),
    (b"\x28\xb5\x2f\xfd", "application/zstd"),
    (b"PAR1", "application/vnd.apache.parquet"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"SQLite format 3", "application/vnd.sqlite3"),
)
_ZIPPED = ("wordprocessingml.document", "spreadsheetml.sheet")
_TABLES = {"text/csv": ",", "text/tab-separated-values": "\t"}
_SEPARATORS = ",;\t|"
#: Bytes that mean nothing in Windows-1252, and something in Latin-1.
_NOT_1252 = frozenset(b"\x81\x8d\x8f\x90\x9d")


@dataclass(frozen=True, kw_only=True)
class Look:
    """The bytes of a file that were looked at."""

    head: bytes
    spots: tuple[bytes, ...]
    is_whole: bool


def look_at(path: str, *, spots: bool) -> Look:
    """The first bytes of a file; of a large one a few more, spread over it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        size = os.fstat(descriptor).st_size
        head = os.pread(descriptor, HEAD, 0)
        more: list[bytes] = []
        if spots and size > HEAD + _SPOT * _SPOTS:
            step = (size - HEAD) // _SPOTS
            more = [os.pread(descriptor, _SPOT, HEAD + step * place) for place in range(_SPOTS)]
    finally:
        os.close(descriptor)
    return Look(head=head, spots=tuple(more), is_whole=size <= len(head))


def sniff(look: Look, *, name: str) -> FileFacts:
    """What is to be said of a file beyond what its name says; nothing when that is all."""
    named = KINDS.get(suffix_of(name), UNKNOWN)
    encoding = encoding_of(look)
    kind = _kind(look.head, named=named, is_text=encoding is not None)
    if kind == "text/plain" and not suffix_of(name) and _begins_as_page(look.head):
        kind = "text/html"
    delimiter, rows = "", None
    if kind in _TABLES and encoding is not None:
        text = look.head.decode(encoding, "replace")
        delimiter = _separator(text, default=_TABLES[kind])
        rows = _rows(text, delimiter or _TABLES[kind]) if look.is_whole else None
    elif kind == "application/jsonl" and look.is_whole:
        rows = sum(1 for line in look.head.split(b"\n") if line.strip())
    return FileFacts(
        kind="" if kind == named and named != UNKNOWN else kind,
        encoding=None if encoding in (None, "utf-8") else encoding,
        delimiter=delimiter,
        rows=rows,
    )


def encoding_of(look: Look) -> str | None:
    """How the bytes are text, as far as they were looked at; None when they are none."""
    for mark, encoding in _BOMS:
        if look.head.startswith(mark):
            return encoding
    pieces = (look.head, *look.spots)
    if any(b"\0" in piece for piece in pieces) or any(look.head.startswith(magic) for magic, _ in _MAGIC):
        return None
    if all(piece.isascii() for piece in pieces):
        return "utf-8"
    if _is_utf8(look.head, is_first=True) and all(_is_utf8(spot, is_first=False) for spot in look.spots):
        return "utf-8"
    return "latin-1" if any(_NOT_1252.intersection(piece) for piece in pieces) else "cp1252"


def _is_utf8(piece: bytes, *, is_first: bool) -> bool:
    start = 0
    if not is_first:
        # A spot may begin in the middle of a character.
        while start < min(3, len(piece)) and piece[start] & 0xC0 == 0x80:
            start += 1
    try:
        codecs.getincrementaldecoder("utf-8")().decode(piece[start:], final=False)
    except UnicodeDecodeError:
        return False
    return True


def _kind(head: bytes, *, named: str, is_text: bool) -> str:
    found = next((kind for magic, kind in _MAGIC if head.startswith(magic)), None)
    if found == "application/zip" and named.endswith(_ZIPPED):
        return named
    if found is not None:
        return found
    if named == "application/pdf" and b"%PDF-" in head[:1024]:
        return named
    if not is_text:
        return UNKNOWN if head else named
    is_named_text = named.startswith("text/") or named.endswith(("json", "jsonl", "xml", "yaml", "toml"))
    return named if is_named_text or not head else "text/plain"


def _begins_as_page(head: bytes) -> bool:
    return head.lstrip()[:64].lower().startswith((b"<!doctype html", b"<html"))


def _separator(text: str, *, default: str) -> str:
    first = text.partition("\n")[0]
    counts = {mark: first.count(mark) for mark in _SEPARATORS}
    best = max(_SEPARATORS, key=lambda mark: (counts[mark], mark == default))
    return best if counts[best] and best != default else ""


def _rows(text: str, delimiter: str) -> int | None:
    try:
        found = csv.reader(text.removeprefix("\ufeff").splitlines(keepends=True), delimiter=delimiter)
        return max(0, sum(1 for row in found if row) - 1)
    except csv.Error:
        return None
