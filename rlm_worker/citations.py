"""Citations and quotes of an answer against the evidence: which fields hold them, and whether they are true."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlm_worker.cited import CitedEvidence
from rlm_worker.contracts import EvidenceRef, JsonObject
from rlm_worker.contracts.result import CitationReport

_MISSING_SHOWN = 20
_TOLD = 5
#: The field beside a citation that holds what stands there, if its schema does not say so by its format.
_QUOTE = "quote"


@dataclass(frozen=True)
class Quote:
    """Words that are said to stand at one of some addresses."""

    text: str
    addresses: tuple[str, ...]


class CitationBook:
    """Knows the evidence of a job; each document is looked at once."""

    def __init__(self, evidence: tuple[EvidenceRef, ...]) -> None:
        self._evidence = CitedEvidence(evidence)

    def report(self, fields: JsonObject, schema: JsonObject) -> CitationReport:
        """Check every citation and every quote that the schema says the fields hold."""
        cited = list(citations_in(fields, schema))
        missing = [address for address in cited if not self.exists(address)]
        quotes = list(quotes_in(fields, schema))
        misquoted = [quote.addresses[0] for quote in quotes if not self.says(quote)]
        return CitationReport(
            checked=len(cited),
            verified=len(cited) - len(missing),
            missing=tuple(missing[:_MISSING_SHOWN]),
            quotes_checked=len(quotes),
            quotes_verified=len(quotes) - len(misquoted),
            misquoted=tuple(misquoted[:_MISSING_SHOWN]),
        )

    def pdf_with(self, name: str, *, page: int) -> Path | None:
        """The file of a PDF of the evidence that has this page."""
        try:
            return self._evidence.pdf_with(name, page=page)
        except (OSError, ValueError):
            return None

    def exists(self, address: str) -> bool:
        """Whether an address names something that is there."""
        try:
            meant = self._evidence.meant(address)
            return meant is not None and meant[0].holds(meant[1])
        except (OSError, ValueError):
            return False

    def says(self, quote: Quote) -> bool:
        """Whether the words stand at one of their addresses; how they are spaced does not matter."""
        return any(self._stands(quote.text, address) for address in quote.addresses)

    def _stands(self, text: str, address: str) -> bool:
        try:
            meant = self._evidence.meant(address)
            if meant is None or not meant[0].holds(meant[1]):
                return False
            return any(_spaced(text) in _spaced(said) for said in meant[0].texts_at(meant[1]))
        except (OSError, ValueError):
            return False


def mistakes_of(report: CitationReport) -> tuple[str, ...]:
    """What is wrong with an answer's citations and quotes, in words for whoever wrote them."""
    found = []
    if wrong := report.checked - report.verified:
        shown = ", ".join(map(repr, report.missing[:_TOLD]))
        found.append(f"{wrong} of {report.checked} citations do not exist in the evidence: {shown}")
    if wrong := report.quotes_checked - report.quotes_verified:
        shown = ", ".join(map(repr, report.misquoted[:_TOLD]))
        found.append(
            f"{wrong} of {report.quotes_checked} quotes do not stand where they are cited: {shown}; "
            "quote word for word, from the text at the address"
        )
    return tuple(found)


def _spaced(text: str) -> str:
    return " ".join(text.split())


def citations_in(value: object, schema: object) -> Iterator[str]:
    """Strings of the value that stand where the schema has `format: citation`, each place once."""
    return _cited(value, [schema], root=schema)


def quotes_in(value: object, schema: object) -> Iterator[Quote]:
    """Quotes of the value that stand in an object beside at least one citation."""
    return _quoted(value, [schema], root=schema)


def _quoted(value: object, schemas: Sequence[object], *, root: object) -> Iterator[Quote]:
    known = list(_expanded(schemas, root=root))
    if isinstance(value, list):
        for place, item in enumerate(value):
            yield from _quoted(item, [_item(schema, place) for schema in known], root=root)
    elif isinstance(value, dict):
        beside: list[str] = []
        quotes: list[str] = []
        for name, part in value.items():
            below = [_property(schema, name) for schema in known]
            yield from _quoted(part, below, root=root)
            if isinstance(part, str) or (isinstance(part, list) and all(isinstance(i, str) for i in part)):
                beside.extend(_cited(part, below, root=root))
            if isinstance(part, str) and part.strip() and _is_quote(name, below, root=root):
                quotes.append(part)
        if beside:
            yield from (Quote(text, tuple(beside)) for text in quotes)


def _is_quote(name: str, schemas: Sequence[object], *, root: object) -> bool:
    formats = {schema.get("format") for schema in _expanded(schemas, root=root)}
    return "citation" not in formats and (name == _QUOTE or "quote" in formats)


def _cited(value: object, schemas: Sequence[object], *, root: object) -> Iterator[str]:
    known = list(_expanded(schemas, root=root))
    match value:
        case str() if any(schema.get("format") == "citation" for schema in known):
            yield value
        case list():
            for place, item in enumerate(value):
                yield from _cited(item, [_item(schema, place) for schema in known], root=root)
        case dict():
            for name, part in value.items():
                yield from _cited(part, [_property(schema, name) for schema in known], root=root)
        case _:
            pass


def _expanded(schemas: Sequence[object], *, root: object) -> Iterator[JsonObject]:
    """Every schema that speaks of the same value: alternatives, parts and references within the root."""
    waiting, seen = list(schemas), set[int]()
    while waiting:
        schema = waiting.pop()
        if not isinstance(schema, dict) or id(schema) in seen:
            continue
        seen.add(id(schema))
        yield schema
        for name in ("anyOf", "oneOf", "allOf"):
            options = schema.get(name)
            waiting.extend(options if isinstance(options, list) else ())
        waiting.append(_referred(schema.get("$ref"), root))


def _referred(pointer: object, root: object) -> object:
    if not isinstance(pointer, str) or not pointer.startswith("#"):
        return None
    found = root
    for part in pointer[1:].split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _item(schema: JsonObject, place: int) -> object:
    first = schema.get("prefixItems")
    return first[place] if isinstance(first, list) and place < len(first) else schema.get("items")


def _property(schema: JsonObject, name: str) -> object:
    known = schema.get("properties")
    return known[name] if isinstance(known, dict) and name in known else schema.get("additionalProperties")
