"""The evidence of a job as a mapping of names to documents. Reads below one folder and follows no link."""

import difflib
import fnmatch
import os
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain, islice
from typing import Any

from sandbox.guest.citing import Address, meanings_of
from sandbox.guest.documents import Chunk, Document, Pattern
from sandbox.guest.facts import READINGS, UNTOLD, Facts, Reading, readings
from sandbox.guest.passages import Passage, Passages
from sandbox.guest.search import Hit, Hits, compile_pattern
from sandbox.guest.tables import Row

_SHOWN = 8
_COMPARED = 5_000
_HASHED = 64 << 20


#: The folder that holds everything, or where each piece lies.
Root = str | Mapping[str, str]


class NoSuchDocument(KeyError):
    """No document has this name; the message names close ones."""

    def __str__(self) -> str:
        return str(self.args[0])


class Evidence(Mapping[str, Document]):
    """All documents of the job, by name: a file is `evidence["app.log"]`, a file of a tree `evidence["stdlib/os.py"]`.

    Names are sorted; nothing is read before you look at it. `evidence.search(regex)` goes over everything,
    `evidence.names("*.py")` and `evidence.documents("*.py")` choose by pattern. Every hit, line and chunk has a `.citation`,
    and `evidence.at(citation)` is what stands there. `evidence.rank("words")` gives the passages that fit words best.
    """

    def __init__(self, root: Root | os.PathLike[str], *, scratch: str = "/workspace") -> None:
        self._root = root if isinstance(root, Mapping) else os.fspath(root)
        self._scratch = scratch
        self._ranked: dict[str | None, Passages] = {}
        #: Names of documents that a search could not open and left out.
        self.unreadable: list[str] = []

    @cached_property
    def _documents(self) -> dict[str, Document]:
        found: dict[str, Document] = {}
        for relative, path in _places(self._root):
            name = os.fsencode(relative).decode("utf-8", "replace")
            while name in found:
                name += "~"
            found[name] = Document(name, path, self._facts(relative))
        return dict(sorted(found.items()))

    @cached_property
    def _readings(self) -> dict[str, Reading]:
        return readings(self._root)

    def _facts(self, relative: str) -> Facts:
        name, _, path = relative.partition("/")
        reading = self._readings.get(name)
        return UNTOLD if reading is None else reading.facts_of(path, name=name)

    def manifest(self, glob: str | None = None, *, hashes: bool | None = None) -> list[dict[str, Any]]:
        """What is known of each document: name, kind, bytes, sha256, encoding, rows, pages, whether it is converted, note.

        Hashes need every byte: they are there for 64 MB of documents and less; beyond that with hashes=True, else None.
        """
        chosen = self.documents(glob)
        if hashes is None:
            hashes = sum(document.raw_size for document in chosen) <= _HASHED
        return [
            {
                "name": document.name,
                "kind": document.kind,
                "bytes": document.raw_size,
                "sha256": document.sha256 if hashes else None,
                "encoding": None if document.is_binary else document.encoding,
                "rows": document.row_count,
                "pages": document.page_count,
                "converted": document.is_converted,
                "note": document.note,
            }
            for document in chosen
        ]

    def at(self, address: str) -> Chunk | Row:
        """What stands at a citation address: `name:10-20`, `name@0-99`, `name#page=3`, `name#row=7`, `name#sha256=…`, or a whole document."""
        meant = meanings_of(address)
        for meaning in meant:
            if meaning.name in self._documents:
                return _part(self._documents[meaning.name], meaning)
        raise NoSuchDocument(self._missing(meant[0].name))

    def rank(self, query: str, *, glob: str | None = None, limit: int = 10) -> list[Passage]:
        """The passages that fit the words of a query best (BM25), each with `score` and `citation`.

        The first call reads all documents (or those of a glob) and indexes them; later calls with the same glob are fast.
        """
        if glob not in self._ranked:
            self._ranked[glob] = Passages(self.documents(glob), folder=self._scratch)
        return self._ranked[glob].best(query, limit=limit)

    def __getitem__(self, name: str) -> Document:
        try:
            return self._documents[name]
        except KeyError:
            raise NoSuchDocument(self._missing(name)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._documents)

    def __len__(self) -> int:
        return len(self._documents)

    def __contains__(self, name: object) -> bool:
        return name in self._documents

    @cached_property
    def total_bytes(self) -> int:
        """Size of all documents together."""
        return sum(document.size for document in self._documents.values())

    def names(self, glob: str | None = None) -> list[str]:
        """Sorted names; a glob such as `*.py` is compared with the whole name and with its last part."""
        if glob is None:
            return list(self._documents)
        matches = re.compile(fnmatch.translate(glob)).match
        return [name for name in self._documents if matches(name) or matches(name.rpartition("/")[2])]

    def documents(self, glob: str | None = None) -> list[Document]:
        """The documents of these names, in order."""
        return [self._documents[name] for name in self.names(glob)]

    def search(
        self,
        regex: Pattern,
        *,
        glob: str | None = None,
        flags: int = 0,
        limit: int | None = None,
        binary: bool = False,
    ) -> Hits:
        r"""Every match of a regular expression in all documents (or those of a glob), found while you iterate.

        Files with a NUL byte in their first 8 KB are left out unless binary=True. A pattern that begins with a literal
        is some 25 times faster than one that begins with a class or `(?i)`: search several literals rather than one
        clever class. `^` and `$` match at lines; classes such as \w know ASCII only.
        """
        compile_pattern(regex, flags)
        chosen = self.documents(glob)

        def scan() -> Iterator[Hit]:
            found = (self._scan(document, regex, flags, binary=binary) for document in chosen)
            return islice(chain.from_iterable(found), limit)

        return Hits(scan, described=f"{regex!r} in {len(chosen):,} documents")

    def _scan(self, document: Document, regex: Pattern, flags: int, *, binary: bool) -> Iterator[Hit]:
        try:
            if not binary and document.is_binary:
                return iter(())
            return document.scan(compile_pattern(regex, flags, document.encoding))
        except OSError:
            if document.name not in self.unreadable:
                self.unreadable.append(document.name)
            return iter(())

    def _missing(self, name: str) -> str:
        names = self.names()
        close = [known for known in names if known.endswith(f"/{name}")][:3]
        close = close or difflib.get_close_matches(str(name), names[:_COMPARED], n=3)
        hint = f"did you mean {', '.join(map(repr, close))}?" if close else "evidence.names() lists them."
        return f"no document is named {name!r}: {hint}"

    def __repr__(self) -> str:
        shown = ", ".join(list(self._documents)[:_SHOWN])
        more = f", … {len(self) - _SHOWN:,} more" if len(self) > _SHOWN else ""
        listed = f": {shown}{more}" if self._documents else ""
        return f"<Evidence of {len(self):,} documents, {self.total_bytes:,} bytes{listed}>"


def _part(document: Document, meant: Address) -> Chunk | Row:
    match meant.unit:
        case "line":
            return document[meant.first : meant.last + 1]
        case "byte":
            return document.between(meant.first, meant.last)
        case "page":
            return document.page(meant.first)
        case "row":
            for row in document.rows():
                if row.number == meant.first:
                    return row
            raise IndexError(f"{document.name} has no row {meant.first}")
        case "content" if document.sha256 != meant.content:
            raise NoSuchDocument(f"{document.name} has another content: its sha256 is {document.sha256}")
        case _:
            return document[1:]


def _places(root: Root) -> Iterator[tuple[str, str]]:
    """Every document's name and the path of its file."""
    if isinstance(root, str):
        found = _files(root, "", without=READINGS)
        yield from ((relative, f"{root}/{relative}") for relative in found)
        return
    for target, source in root.items():
        if target.startswith(f"{READINGS}/"):
            continue
        if os.path.isdir(source):  # noqa: PTH112 - a string
            yield from ((f"{target}/{relative}", f"{source}/{relative}") for relative in _files(source, ""))
        else:
            yield target, source


def _files(root: str, below: str, *, without: str = "") -> Iterator[str]:
    """Regular files at any depth. Links are passed over: what they lead to is either here already or not evidence."""
    folders: list[str] = []
    try:
        with os.scandir(f"{root}/{below}") as listing:
            for entry in listing:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name != without:
                        folders.append(f"{below}{entry.name}/")
                elif entry.is_file(follow_symlinks=False):
                    yield f"{below}{entry.name}"
    except OSError:
        return
    for folder in folders:
        yield from _files(root, folder)
