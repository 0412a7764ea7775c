"""The evidence as a prompt tells it: each piece with its manifest's digest, and the documents in it that are more than plain text."""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path

from rlm_worker.contracts import EvidenceRef
from rlm_worker.contracts.job import Reading
from rlm_worker.contracts.reading import INDEX, FileFacts, ReadingIndex

#: Documents that are listed; what is more is counted.
SHOWN = 20
_NAME_CHARS = 100
_NOTE_CHARS = 80
_KINDS_SHOWN = 8


def pieces(refs: Sequence[EvidenceRef]) -> tuple[str, ...]:
    """A line for each piece of evidence; nothing in it was chosen by whoever wrote the evidence."""
    return tuple(
        f"- {ref.name}: {ref.kind}, {ref.files} files, {ref.size_bytes:,} bytes, manifest {ref.manifest_digest[:12]}"
        f"{_kinds(ref)}"
        for ref in refs
    )


def documents(refs: Sequence[EvidenceRef]) -> str:
    """A line for each of the first documents that are more than plain text; their names are data of strangers."""
    if not any(True for _ in _described(refs)):
        return ""
    lines = list(islice(_described(refs), SHOWN))
    left = sum(ref.files for ref in refs) - len(lines)
    return "\n".join([*lines, f"and {left:,} more: evidence.manifest()"] if left else lines)


def _kinds(ref: EvidenceRef) -> str:
    kinds = sorted(set(_index(ref.reading).kinds.values()))
    if not kinds:
        return ""
    more = f" and {len(kinds) - _KINDS_SHOWN} more" if len(kinds) > _KINDS_SHOWN else ""
    return f", {', '.join(kinds[:_KINDS_SHOWN])}{more}"


def _described(refs: Sequence[EvidenceRef]) -> Iterator[str]:
    for ref in refs:
        index = _index(ref.reading)
        for path, facts in sorted(index.files.items()):
            if facts.text or facts.pages or facts.rows is not None or facts.encoding or facts.note:
                name = f"{ref.name}/{path}" if path else ref.name
                yield f"{_clipped(name, _NAME_CHARS)}: {_facts(facts, index.kind_of(path, name=ref.name))}"


def _facts(facts: FileFacts, kind: str) -> str:
    said = [kind]
    if facts.pages:
        said.append(f"{len(facts.pages):,} pages")
    if facts.rows is not None:
        said.append(f"{facts.rows:,} rows")
    if facts.encoding:
        said.append(facts.encoding)
    if facts.text:
        said.append("read as text")
    if facts.digest:
        said.append(f"sha256 {facts.digest}")
    if facts.note:
        said.append(_clipped(facts.note, _NOTE_CHARS))
    return ", ".join(said)


def _clipped(text: str, chars: int) -> str:
    plain = " ".join(text.encode("utf-8", "replace").decode().split())
    return plain if len(plain) <= chars else f"{plain[: chars - 1]}…"


def _index(reading: Reading | None) -> ReadingIndex:
    return ReadingIndex() if reading is None else _read(reading.location, reading.digest)


@lru_cache(maxsize=64)
def _read(location: str, digest: str) -> ReadingIndex:  # noqa: ARG001 - another digest is another reading
    try:
        body = (Path(location) / INDEX).read_bytes()
        return ReadingIndex.model_validate(json.loads(body.decode("utf-8", "surrogatepass")))
    except (OSError, ValueError):
        return ReadingIndex()
