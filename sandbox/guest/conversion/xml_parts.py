"""Parts of a zipped XML document, read event by event. Entities, huge parts and deep nesting are refused."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

_BLOCK = 1 << 16
_MAX_PART = 256 << 20
_MAX_DEPTH = 256

#: ("start", tag, attributes), ("end", tag, {}) or ("text", characters, {}); tags without their namespace.
Event = tuple[str, str, dict[str, str]]


class BadDocument(ValueError):
    """The document is not what its name says, or tries to be more."""


class Package:
    """The zip file around the parts."""

    def __init__(self, path: Path) -> None:
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, OSError, ValueError) as error:
            raise BadDocument(f"it is no zip file: {error}") from None

    def has(self, name: str) -> bool:
        return name in self._zip.NameToInfo

    def events(self, name: str) -> Iterator[Event]:
        """The elements and texts of one part."""
        try:
            part = self._zip.open(name)
        except KeyError:
            raise BadDocument(f"it has no part {name}") from None
        with part:
            reader, size = _Reader(), 0
            while block := part.read(_BLOCK):
                size += len(block)
                if size > _MAX_PART:
                    raise BadDocument(f"its part {name} is larger than {_MAX_PART:,} bytes")
                yield from reader.feed(block)
            yield from reader.feed(b"", is_last=True)


class _Reader:
    def __init__(self) -> None:
        self._events: list[Event] = []
        self._depth = 0
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = lambda text: self._events.append(("text", text, {}))
        self._parser.EntityDeclHandler = self._refuse
        self._parser.StartDoctypeDeclHandler = self._refuse

    def feed(self, block: bytes, *, is_last: bool = False) -> list[Event]:
        try:
            self._parser.Parse(block, is_last)
        except expat.ExpatError as error:
            raise BadDocument(f"its XML is broken: {error}") from None
        found, self._events = self._events, []
        return found

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise BadDocument(f"its XML is nested deeper than {_MAX_DEPTH} levels")
        plain = {name.rpartition(" ")[2]: value for name, value in attributes.items()}
        self._events.append(("start", tag.rpartition(" ")[2], plain))

    def _end(self, tag: str) -> None:
        self._depth -= 1
        self._events.append(("end", tag.rpartition(" ")[2], {}))

    def _refuse(self, *_declared: object) -> None:
        raise BadDocument("its XML declares a document type or entities, which no such document needs")
