"""Evidence: staged by a manifest of what lies there, without reading a byte; sealed by content when a job has used it."""

import hashlib
import json
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.adapters.content_store import Blob, ContentStore
from controlplane.adapters.inbox import Inbox
from controlplane.adapters.intake import ArtifactsOf, Intake, Placed
from controlplane.adapters.private_files import replace_file
from controlplane.adapters.readings import (
    Convert,
    Found,
    OnConverted,
    ReadingRoom,
    digest_of_reading,
    unheard,
)
from controlplane.adapters.sources.paths import check_tree
from controlplane.adapters.sources.typed import Source
from controlplane.adapters.survey import survey
from controlplane.errors import InvalidRequest
from rlm_worker.contracts import EvidenceRef, canonical, digest
from rlm_worker.contracts.reading import INDEX, ManifestEntry, ReadingIndex, is_text_kind

_BLOCK = 4 << 20


@dataclass(frozen=True, kw_only=True)
class StagedEvidence:
    """A reference for the job and where its manifest is kept."""

    ref: EvidenceRef
    manifest: Path


class EvidenceRoom:
    """Manifests, readings and seals of one home."""

    def __init__(self, home: Path, *, convert: Convert | None = None) -> None:
        self._folder = home / "evidence"
        self._store = ContentStore(self._folder / "store")
        self.inbox = Inbox(home, self._store)
        self._readings = ReadingRoom(self._folder / "readings", self._store, convert)

    def stage(
        self,
        sources: Sequence[Path | Source],
        *,
        snapshot: bool = False,
        artifacts_of: ArtifactsOf | None = None,
        on_converted: OnConverted = unheard,
    ) -> tuple[StagedEvidence, ...]:
        """Take stock of sources. What lies on this machine costs the same for a byte and for a gigabyte.

        What is kept of them, and every manifest, is on the disk before a job can refer to it.
        """
        intake = Intake(self._folder / "brought", self._store, artifacts_of=artifacts_of)
        taken: set[str] = set()
        staged = tuple(
            self._stage(intake.bring(_source(source), snapshot=snapshot), taken, on_converted)
            for source in sources
        )
        self._store.sync()
        return staged

    def stage_kept(self, files: Mapping[str, str], name: str, is_plain: bool) -> EvidenceRef:
        """Evidence of content that is kept here: one file, unpacked and converted unless it is plain, or a folder of several."""
        check_tree(files)
        blobs = {path: self._kept(path, content) for path, content in files.items()}
        origin = "uploaded"
        if len(blobs) > 1 or "/" in next(iter(blobs)):
            placed = Placed(place=self._store.tree(blobs), name=name, origin=origin, is_plain=is_plain)
        elif is_plain:
            (blob,) = blobs.values()
            placed = Placed(place=blob.path, name=name, origin=origin, is_plain=True)
        else:
            (blob,) = blobs.values()
            intake = Intake(self._folder / "brought", self._store)
            placed = intake.opened(blob.path, name, origin=origin)
        staged = self._stage(placed, set(), unheard)
        self._store.sync()
        return staged.ref

    def _kept(self, path: str, content: str) -> Blob:
        blob = self._store.find(content)
        if blob is None:
            raise InvalidRequest(f"the content of {path!r} is no longer kept here: upload it again")
        return blob

    def _stage(self, placed: Placed, taken: set[str], on_converted: OnConverted) -> StagedEvidence:
        place, kind, entries = placed.surveyed or survey(placed.place)
        body = {"kind": kind, "entries": entries}
        mark = digest(body)
        name = _name_for(placed.name, taken)
        taken.add(name)
        found = Found(
            place=place,
            name=name,
            files=[(entry[0], entry[1]) for entry in entries],
            key=digest([mark, str(place), name]),
            notes=placed.notes,
            is_plain=placed.is_plain,
            on_converted=on_converted,
        )
        ref = EvidenceRef(
            name=name,
            kind="tree" if kind == "tree" else "file",
            location=str(place),
            manifest_digest=mark,
            files=len(entries),
            size_bytes=sum(entry[1] for entry in entries),
            origin=placed.origin,
            reading=self._readings.read(found),
        )
        return StagedEvidence(ref=ref, manifest=_write_once(self._folder / f"{mark}.json", canonical(body)))

    def manifest(self, ref: EvidenceRef) -> tuple[ManifestEntry, ...]:
        """What is known of each file: from its manifest, its reading and, once a job has used it, its seal."""
        index = self._index(ref)
        hashes = self._sealed(ref).get("files", {})
        return tuple(
            _manifest_entry(ref, path, size, index=index, content=hashes.get(path))
            for path, size, *_ in self._entries(ref)
        )

    def notes(self, ref: EvidenceRef) -> tuple[str, ...]:
        """What was left out when it was brought in."""
        return self._index(ref).notes

    def _index(self, ref: EvidenceRef) -> ReadingIndex:
        if ref.reading is None:
            return ReadingIndex()
        try:
            body = (Path(ref.reading.location) / INDEX).read_bytes()
            return ReadingIndex.model_validate(json.loads(body.decode("utf-8", "surrogatepass")))
        except (OSError, ValueError):
            return ReadingIndex()

    def _kept_seal(self, ref: EvidenceRef) -> Path:
        return self._folder / "sealed" / f"{digest([ref.manifest_digest, ref.location])}.json"

    def _sealed(self, ref: EvidenceRef) -> dict[str, Any]:
        kept = self._kept_seal(ref)
        found: dict[str, Any] = json.loads(kept.read_bytes()) if kept.is_file() else {}
        return found

    def seal(self, ref: EvidenceRef, stop: threading.Event) -> str | None:
        """Digest of the contents in the order of the manifest; None when stopped. Kept: evidence is hashed once."""
        content = self._seal_content(ref, stop)
        if content is None or ref.reading is None:
            return content
        found = digest_of_reading(ref.reading, self._store)
        return content if found == ref.reading.digest else digest(["another reading", content, found])

    def _seal_content(self, ref: EvidenceRef, stop: threading.Event) -> str | None:
        known = self._sealed(ref).get("content_digest")
        if known is not None and not self.changed(ref):
            return str(known)
        total, hashes = hashlib.sha256(), dict[str, str]()
        for name, *_ in self._entries(ref):
            content = _content_digest(_file_of(ref, name), stop)
            if content is None:
                return None
            hashes[name] = content
            total.update(canonical([name, content]))
        sealed = total.hexdigest()
        if not self.changed(ref):
            body = {"content_digest": sealed, "manifest_digest": ref.manifest_digest, "files": hashes}
            _write_once(self._kept_seal(ref), canonical(body))
        return sealed

    def changed(self, ref: EvidenceRef) -> bool:
        """True when what lies there is no longer what was staged."""
        try:
            _, kind, entries = survey(Path(ref.location))
        except InvalidRequest:
            return True
        return digest({"kind": kind, "entries": entries}) != ref.manifest_digest

    def body(self, ref: EvidenceRef) -> dict[str, Any]:
        """Its manifest, whose digest names it: the kind, and path, size, time and mode of each file."""
        manifest = self._folder / f"{ref.manifest_digest}.json"
        try:
            body: dict[str, Any] = json.loads(manifest.read_bytes().decode("utf-8", "surrogatepass"))
        except (OSError, ValueError) as error:
            raise InvalidRequest(f"the manifest of evidence {ref.name!r} cannot be read: {error}") from error
        return body

    def _entries(self, ref: EvidenceRef) -> list[Any]:
        entries: list[Any] = self.body(ref)["entries"]
        return entries


def _file_of(ref: EvidenceRef, name: str) -> Path:
    return Path(ref.location) / name if name else Path(ref.location)


def _content_digest(path: Path, stop: threading.Event) -> str | None:
    total = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as opened:
            while not stop.is_set():
                if not (block := opened.read(_BLOCK)):
                    return total.hexdigest()
                total.update(block)
    except OSError as error:
        # A file that vanished or is locked away is itself a fact about the contents.
        return f"unreadable:{error.errno}"
    return None


def _source(given: Path | Source) -> Source:
    return given if isinstance(given, Source) else Source(address=str(given))


def _manifest_entry(
    ref: EvidenceRef, path: str, size: int, *, index: ReadingIndex, content: str | None
) -> ManifestEntry:
    facts, kind = index.facts_of(path), index.kind_of(path, name=ref.name)
    is_text = bool(facts.text) or is_text_kind(kind)
    return ManifestEntry(
        path=f"{ref.name}/{path}" if path else ref.name,
        kind=kind,
        size_bytes=size,
        digest=content or facts.digest or None,
        encoding=facts.encoding or ("utf-8" if is_text else None),
        rows=facts.rows,
        pages=len(facts.pages) or None,
        is_converted=bool(facts.text),
        note=facts.note,
    )


def _name_for(wanted: str, taken: set[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", wanted)
    base = re.sub(r"^[^A-Za-z0-9]+", "", plain)[:190].rstrip() or "evidence"
    if base not in taken:
        return base
    stem, dot, suffix = base.rpartition(".")
    stem, suffix = (stem, dot + suffix) if stem else (base, "")
    number = next(number for number in range(2, len(taken) + 3) if f"{stem}-{number}{suffix}" not in taken)
    return f"{stem}-{number}{suffix}"


def _write_once(path: Path, content: bytes) -> Path:
    """Write a file that is named by its content: whole or not at all, and not twice."""
    if not path.is_file():
        replace_file(path, content)
    return path
