"""Citation addresses (`name:12`, `name:12-20`) against the evidence as it lies on disk. Reads; follows no link out."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlm_worker.contracts import EvidenceRef, JsonObject
from rlm_worker.contracts.result import CitationReport

_ADDRESS = re.compile(r"^(?P<name>.+?)(?::(?P<first>\d{1,12})(?:-(?P<last>\d{1,12}))?)?\Z", re.DOTALL)
_BLOCK = 1 << 20
_MISSING_SHOWN = 20


class CitationBook:
    """Knows how many lines each cited document has; each is counted once."""

    def __init__(self, evidence: tuple[EvidenceRef, ...]) -> None:
        self._evidence = {ref.name: ref for ref in evidence}
        self._lines: dict[Path, int] = {}

    def report(self, fields: JsonObject, schema: JsonObject) -> CitationReport:
        """Check every citation that the schema says the fields hold."""
        cited = list(citations_in(fields, schema))
        missing = [address for address in cited if not self.exists(address)]
        return CitationReport(
            checked=len(cited), verified=len(cited) - len(missing), missing=tuple(missing[:_MISSING_SHOWN])
        )

    def exists(self, address: str) -> bool:
        found = _ADDRESS.match(address)
        if found is None:
            return False
        path = self._path(found["name"])
        if path is None:
            return False
        first = int(found["first"] or 1)
        last = int(found["last"] or first)
        try:
            return 1 <= first <= last <= max(1, self._line_count(path))
        except OSError:
            return False

    def _path(self, name: str) -> Path | None:
        root_name, _, rest = name.partition("/")
        ref = self._evidence.get(root_name)
        if ref is None or (ref.kind == "file") != (not rest):
            return None
        root = Path(ref.location)
        path = root / rest if rest else root
        try:
            inside = path.resolve(strict=True)
        except (OSError, ValueError, RuntimeError):  # a loop of links is a RuntimeError
            return None
        is_ours = inside.is_file() and inside.is_relative_to(root.resolve())
        return inside if is_ours else None

    def _line_count(self, path: Path) -> int:
        if path not in self._lines:
            self._lines[path] = _count_lines(path)
        return self._lines[path]


def _count_lines(path: Path) -> int:
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            count += block.count(b"\n")
            last = block[-1:]
    return count + (last != b"\n")


def citations_in(value: object, schema: object) -> Iterator[str]:
    """Strings of the value that stand where the schema has `format: citation`, each place once."""
    return _cited(value, [schema], root=schema)


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
