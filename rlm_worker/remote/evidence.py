"""Evidence of a job that runs elsewhere: fetched by content under its lease, checked against its manifest, mounted from a cache."""

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from rlm_worker.contracts import EvidenceRef, canonical, digest
from rlm_worker.contracts.gateway import GatewayDown, Lease
from rlm_worker.contracts.reading import INDEX
from rlm_worker.contracts.remote import (
    BUNDLE_BYTES,
    EvidenceAnswer,
    EvidenceFile,
    EvidenceRequest,
    FilesRequest,
)
from rlm_worker.remote.cache import Entry, EvidenceCache, digest_of, make_folders
from rlm_worker.remote.gateway import EvidenceRefused, HttpGateway

log = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Part = Literal["content", "reading"]
Numbered = tuple[int, EvidenceFile]

#: Larger files are fetched alone, part by part.
_SMALL = 1 << 20
#: Small files that are fetched together.
_TOGETHER = 1_000
_TRIES = 3
_AGAIN_SECONDS = 0.2
_FOLDER = 0o755
#: Changes when entries are laid out in another way.
_VERSION = 1


class Abandoned(Exception):
    """The job is being ended: nothing more is fetched."""


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A piece of evidence on this machine; it stays until it is let go."""

    ref: EvidenceRef
    entry: Entry


class Fetcher:
    """Fetches evidence under one lease."""

    def __init__(
        self, gateway: HttpGateway, cache: EvidenceCache, lease: Lease, enough: threading.Event
    ) -> None:
        self._gateway = gateway
        self._cache = cache
        self._lease = lease
        self._enough = enough

    def fetch(self, ref: EvidenceRef) -> Fetched:
        """Have a piece of evidence here. Raises EvidenceRefused when it is not what was staged, Abandoned when it is enough."""
        manifest, files = self._listed(ref, "content")
        _check_manifest(ref, manifest, files)
        texts = self._listed(ref, "reading")[1] if ref.reading is not None else []
        _check_names(ref, texts)
        key = digest([_VERSION, ref.manifest_digest, _marks(files), _marks(texts)])
        entry = self._cache.entry(key)
        if entry is None:
            while entry is None:
                entry = self._make(ref, files, texts, key)
            self._cache.trim()
        return Fetched(ref=_placed(ref, entry), entry=entry)

    def _make(
        self, ref: EvidenceRef, files: Sequence[EvidenceFile], texts: Sequence[EvidenceFile], key: str
    ) -> Entry | None:
        """The entry of these files; None when another process has just removed the one that was there."""
        with self._cache.draft() as draft:
            self._place(ref, "content", files, draft / "content", is_tree=ref.kind == "tree")
            if ref.reading is not None:
                self._place(ref, "reading", texts, draft / "reading", is_tree=True)
                _check_reading(ref, draft / "reading", texts)
            facts = {
                "content_digest": _content_digest(files),
                "files": [[file.path, file.size_bytes, file.changed_ns, file.unreadable] for file in files],
            }
            (draft / "facts.json").write_text(json.dumps(facts))
            self._cache.enter(draft, key)
            # Taken before the draft is let go of: in between nobody may remove it.
            return self._cache.entry(key)

    def _listed(self, ref: EvidenceRef, part: Part) -> tuple[Any, list[EvidenceFile]]:
        """The manifest and the files with their digests; a server that is not done hashing is asked again."""
        files, manifest, more = list[EvidenceFile](), None, True
        while more:
            request = EvidenceRequest(
                job_id=self._lease.job_id,
                fence=self._lease.fence,
                name=ref.name,
                part=part,
                after=len(files),
            )

            def ask(request: EvidenceRequest = request) -> EvidenceAnswer:
                return self._gateway.evidence(ref.manifest_digest, request)

            page = self._patiently(ask)
            files += page.files
            manifest, more = manifest or page.manifest, page.more
        return manifest, files

    def _place(
        self, ref: EvidenceRef, part: Part, files: Sequence[EvidenceFile], top: Path, *, is_tree: bool
    ) -> None:
        """Every file at its place: from the cache, or from the server."""
        if is_tree:
            top.mkdir()
            top.chmod(_FOLDER)
        missing: list[tuple[Numbered, Path]] = []
        for number, file in enumerate(files):
            target = top / file.path if is_tree else top
            make_folders(top, file.path)
            if file.unreadable:
                target.touch(mode=0)
            elif not self._cache.link(file, target):
                missing.append(((number, file), target))
        for bundle in _bundles([numbered for numbered, _ in missing]):
            targets = {number: target for (number, _), target in missing}
            self._fetch(ref, part, bundle, targets)

    def _fetch(
        self, ref: EvidenceRef, part: Part, bundle: Sequence[Numbered], targets: dict[int, Path]
    ) -> None:
        whole = self._together(ref, part, bundle) if len(bundle) > 1 else {}
        for number, file in bundle:
            target = targets[number]
            # The same content may stand twice in a bundle, or have come meanwhile.
            if self._cache.link(file, target):
                continue
            content = whole.get(number)
            if content is None:
                self._fetch_alone(ref, part, (number, file), target)
            else:
                with self._cache.fresh(content) as fresh:
                    self._cache.keep(file, fresh, target)

    def _together(self, ref: EvidenceRef, part: Part, bundle: Sequence[Numbered]) -> dict[int, bytes]:
        """Small files in one answer; those that did not arrive as they are, are left out."""
        body = self._bytes(ref, part, tuple(number for number, _ in bundle))
        found, at = dict[int, bytes](), 0
        for number, file in bundle:
            content = body[at : at + file.size_bytes]
            at += file.size_bytes
            if hashlib.sha256(content).hexdigest() == file.digest:
                found[number] = content
        return found

    def _fetch_alone(self, ref: EvidenceRef, part: Part, wanted: Numbered, target: Path) -> None:
        """One file, part by part, from where an earlier try ended. What arrives with other bytes is fetched anew."""
        number, file = wanted
        with self._cache.incoming(file, self._enough) as coming:
            for _ in range(_TRIES):
                if self._enough.is_set():
                    raise Abandoned
                if self._cache.link(file, target):
                    return
                self._fetch_rest(ref, part, number, file, coming)
                if coming.stat().st_size == file.size_bytes and digest_of(coming) == file.digest:
                    self._cache.keep(file, coming, target)
                    return
                log.warning("evidence_corrupted", extra={"evidence": ref.name, "file": file.path})
                coming.write_bytes(b"")
        raise EvidenceRefused(
            f"evidence {ref.name!r}: {file.path or 'the file'} arrived {_TRIES} times with another content than "
            "the server says it has. It changed there, or something on the way changes it"
        )

    def _fetch_rest(
        self, ref: EvidenceRef, part: Part, number: int, file: EvidenceFile, coming: Path
    ) -> None:
        with coming.open("ab") as opened:
            at = opened.tell()
            while at < file.size_bytes:
                piece = self._bytes(ref, part, (number,), offset=at)
                if not piece:
                    return
                opened.write(piece)
                at += len(piece)

    def _bytes(self, ref: EvidenceRef, part: Part, numbers: tuple[int, ...], *, offset: int = 0) -> bytes:
        request = FilesRequest(
            job_id=self._lease.job_id,
            fence=self._lease.fence,
            name=ref.name,
            part=part,
            numbers=numbers,
            offset=offset,
        )
        return self._patiently(lambda: self._gateway.files(ref.manifest_digest, request))

    def _patiently(self, ask: Callable[[], Answer]) -> Answer:
        """Ask for as long as the job is worked on: the lease ends it, when the server does not come back."""
        while not self._enough.is_set():
            try:
                return ask()
            except GatewayDown:
                self._enough.wait(_AGAIN_SECONDS)
        raise Abandoned


def _bundles(missing: Sequence[Numbered]) -> Iterator[list[Numbered]]:
    """Small files together, large ones alone."""
    together, size = list[Numbered](), 0
    for number, file in missing:
        if file.size_bytes > _SMALL:
            yield [(number, file)]
            continue
        if together and (size + file.size_bytes > BUNDLE_BYTES or len(together) >= _TOGETHER):
            yield together
            together, size = [], 0
        together.append((number, file))
        size += file.size_bytes
    if together:
        yield together


def _marks(files: Sequence[EvidenceFile]) -> list[list[object]]:
    return [[file.path, file.digest, file.changed_ns, file.unreadable] for file in files]


def _placed(ref: EvidenceRef, entry: Entry) -> EvidenceRef:
    """The reference with the places of this machine."""
    reading = ref.reading
    if reading is not None:
        reading = reading.model_copy(update={"location": str(entry.reading)})
    return ref.model_copy(update={"location": str(entry.content), "reading": reading})


def _check_manifest(ref: EvidenceRef, manifest: Any, files: Sequence[EvidenceFile]) -> None:
    """The files must be those of the manifest, and the manifest that of the job."""
    if manifest is None or digest(manifest) != ref.manifest_digest:
        raise EvidenceRefused(
            f"evidence {ref.name!r}: the server's manifest is not the one that the job names"
        )
    entries = [(entry[0], entry[1], entry[2]) for entry in manifest["entries"]]
    told = [(file.path, file.size_bytes, file.changed_ns) for file in files]
    if entries != told or manifest["kind"] != ref.kind:
        raise EvidenceRefused(f"evidence {ref.name!r}: the server's files are not those of its manifest")
    _check_names(ref, files)


def _check_names(ref: EvidenceRef, files: Sequence[EvidenceFile]) -> None:
    """No path may lead out of the folder it is placed in."""
    for file in files:
        parts = file.path.split("/")
        if (file.path or ref.kind == "tree") and any(
            part in ("", ".", "..") or "\0" in part for part in parts
        ):
            raise EvidenceRefused(f"evidence {ref.name!r}: {file.path!r} is no path below it")


def _check_reading(ref: EvidenceRef, folder: Path, texts: Sequence[EvidenceFile]) -> None:
    """The index and the text forms must be those that the job names."""
    assert ref.reading is not None
    try:
        body = (folder / INDEX).read_bytes().decode("utf-8", "surrogatepass")
        told = json.loads(body).get("files", {})
        names = [each["text"] for _, each in sorted(told.items()) if each.get("text")]
        contents = {file.path: file.digest for file in texts}
        found = digest([body, [[name, contents[name]] for name in names]])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EvidenceRefused(f"the reading of evidence {ref.name!r} cannot be read: {error}") from error
    if found != ref.reading.digest:
        raise EvidenceRefused(f"the reading of evidence {ref.name!r} is not the one that the job names")


def _content_digest(files: Sequence[EvidenceFile]) -> str:
    """What sealing on the server's own machine would give."""
    total = hashlib.sha256()
    for file in files:
        content = f"unreadable:{file.unreadable}" if file.unreadable else file.digest
        total.update(canonical([file.path, content]))
    return total.hexdigest()
