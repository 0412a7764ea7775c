"""Citation addresses (`name:12`, `name:12-20`) against the evidence as it lies on disk. Reads; follows no link out."""

import re
from collections.abc import Iterator
from pathlib import Path

from rlm_worker.contracts import EvidenceRef, JsonObject
from rlm_worker.contracts.result import CitationReport

_ADDRESS = re.compile(r"^(?P<name>.+?)(?::(?P<first>\d{1,12})(?:-(?P<last>\d{1,12}))?)?$", re.DOTALL)
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
        return 1 <= first <= last <= max(1, self._line_count(path))

    def _path(self, name: str) -> Path | None:
        root_name, _, rest = name.partition("/")
        ref = self._evidence.get(root_name)
        if ref is None or (ref.kind == "file") != (not rest):
            return None
        root = Path(ref.location)
        path = root / rest if rest else root
        try:
            inside = path.resolve(strict=True)
        except (OSError, ValueError):
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
    """Strings of the value that stand where the schema has `format: citation`."""
    if not isinstance(schema, dict):
        return
    if isinstance(value, str) and schema.get("format") == "citation":
        yield value
    for option in schema.get("anyOf", ()):
        yield from citations_in(value, option)
    if isinstance(value, list):
        for item in value:
            yield from citations_in(item, schema.get("items"))
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for name, part in value.items():
            yield from citations_in(part, known.get(name, schema.get("additionalProperties")))
