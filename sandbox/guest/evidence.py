"""The evidence of a job as a mapping of names to documents. Reads below one folder and follows no link."""

import difflib
import fnmatch
import os
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain, islice

from sandbox.guest.documents import Document, Pattern
from sandbox.guest.search import Hit, Hits, compile_pattern

_SHOWN = 8
_COMPARED = 5_000


#: The folder that holds everything, or where each piece lies.
Root = str | Mapping[str, str]


class NoSuchDocument(KeyError):
    """No document has this name; the message names close ones."""

    def __str__(self) -> str:
        return str(self.args[0])


class Evidence(Mapping[str, Document]):
    """All documents of the job, by name: a file is `evidence["app.log"]`, a file of a tree `evidence["stdlib/os.py"]`.

    Names are sorted; nothing is read before you look at it. `evidence.search(regex)` goes over everything,
    `evidence.names("*.py")` and `evidence.documents("*.py")` choose by pattern. Every hit, line and chunk has a `.citation`.
    """

    def __init__(self, root: Root | os.PathLike[str]) -> None:
        self._root = root if isinstance(root, Mapping) else os.fspath(root)
        #: Names of documents that a search could not open and left out.
        self.unreadable: list[str] = []

    @cached_property
    def _documents(self) -> dict[str, Document]:
        found: dict[str, Document] = {}
        for relative, path in _places(self._root):
            name = os.fsencode(relative).decode("utf-8", "replace")
            while name in found:
                name += "~"
            found[name] = Document(name, path)
        return dict(sorted(found.items()))

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
        pattern = compile_pattern(regex, flags)
        chosen = self.documents(glob)

        def scan() -> Iterator[Hit]:
            return islice(
                chain.from_iterable(self._scan(document, pattern, binary) for document in chosen), limit
            )

        return Hits(scan, described=f"{regex!r} in {len(chosen):,} documents")

    def _scan(self, document: Document, pattern: re.Pattern[bytes], binary: bool) -> Iterator[Hit]:
        try:
            if not binary and document.is_binary:
                return iter(())
            return document.scan(pattern)
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


def _places(root: Root) -> Iterator[tuple[str, str]]:
    """Every document's name and the path of its file."""
    if isinstance(root, str):
        yield from ((relative, f"{root}/{relative}") for relative in _files(root, ""))
        return
    for target, source in root.items():
        if os.path.isdir(source):  # noqa: PTH112 - a string
            yield from ((f"{target}/{relative}", f"{source}/{relative}") for relative in _files(source, ""))
        else:
            yield target, source


def _files(root: str, below: str) -> Iterator[str]:
    """Regular files at any depth. Links are passed over: what they lead to is either here already or not evidence."""
    folders: list[str] = []
    try:
        with os.scandir(f"{root}/{below}") as listing:
            for entry in listing:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{below}{entry.name}/")
                elif entry.is_file(follow_symlinks=False):
                    yield f"{below}{entry.name}"
    except OSError:
        return
    for folder in folders:
        yield from _files(root, folder)
