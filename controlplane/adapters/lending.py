"""Evidence for workers of other machines: its files with their digests, and their bytes, as long as it is what was staged."""

import hashlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from controlplane.adapters.evidence import EvidenceRoom
from controlplane.errors import InvalidRequest, NotFound
from rlm_worker.contracts import EvidenceRef
from rlm_worker.contracts.reading import INDEX
from rlm_worker.contracts.remote import BUNDLE_BYTES, PART_BYTES, EvidenceAnswer, EvidenceFile

Part = Literal["content", "reading"]

_PAGE = 1_000
#: A request waits so long for digests; what takes longer goes on behind it, and is asked for again.
_PATIENCE_SECONDS = 5.0
_BLOCK = 1 << 20
#: Pieces of evidence whose digests are remembered.
_REMEMBERED = 16
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class EvidenceChanged(InvalidRequest):
    """What lies there is not what was staged."""


@dataclass(frozen=True, kw_only=True)
class _Wanted:
    """One file to lend, as it must be."""

    path: Path
    below: str
    size: int
    #: Of the content, which lies where its owner can change it; None: it is ours.
    changed_ns: int | None

    def opened(self) -> tuple[int, os.stat_result]:
        """A descriptor of the file that was staged, and of no other."""
        descriptor = os.open(self.path, _READ)
        found = os.fstat(descriptor)
        if found.st_size != self.size or self.changed_ns not in (None, found.st_mtime_ns):
            os.close(descriptor)
            raise EvidenceChanged(f"evidence {str(self.path)!r} changed since it was staged: stage it again")
        return descriptor, found


@dataclass(frozen=True)
class _Lent:
    """One part of a piece of evidence: its files, and their digests as soon as they are known."""

    files: tuple[_Wanted, ...]
    hashed: Future[tuple[EvidenceFile, ...]]


class Lender:
    """Lends the evidence of one home."""

    def __init__(self, room: EvidenceRoom) -> None:
        self._room = room
        self._hashing = ThreadPoolExecutor(max_workers=2, thread_name_prefix="custody-digests")
        self._known: OrderedDict[tuple[str, str, Part], _Lent] = OrderedDict()
        self._lock = threading.Lock()

    def page(self, ref: EvidenceRef, part: Part, *, after: int) -> EvidenceAnswer:
        """A page of files; an empty one with more to come: their digests are not known yet."""
        if after == 0 and part == "content" and self._room.changed(ref):
            raise EvidenceChanged(f"evidence {ref.name!r} changed since it was staged: stage it again")
        lent = self._lent(ref, part)
        try:
            files = lent.hashed.result(timeout=_PATIENCE_SECONDS)
        except NotYet:
            return EvidenceAnswer(files=(), more=True)
        except Exception:
            self._forget(ref, part)
            raise
        page = files[after : after + _PAGE]
        return EvidenceAnswer(
            files=page,
            more=after + len(page) < len(files),
            manifest=self._room.body(ref) if after == 0 and part == "content" else None,
        )

    def bytes_of(self, ref: EvidenceRef, part: Part, numbers: Sequence[int], *, offset: int) -> bytes:
        """Files one after the other, or a part of a single one."""
        wanted = self._lent(ref, part).files
        if any(not 0 <= number < len(wanted) for number in numbers):
            raise NotFound(f"evidence {ref.name!r} has {len(wanted)} files in its {part}")
        chosen = [wanted[number] for number in numbers]
        if len(chosen) == 1:
            return _piece(chosen[0], offset=offset, most=PART_BYTES)
        if sum(each.size for each in chosen) > BUNDLE_BYTES:
            raise InvalidRequest(
                f"more than {BUNDLE_BYTES:,} bytes are asked for at once: ask for fewer files"
            )
        return b"".join(_piece(each, offset=0, most=each.size) for each in chosen)

    def _wanted(self, ref: EvidenceRef, part: Part) -> list[_Wanted]:
        if part == "reading":
            return _of_reading(ref)
        top = Path(ref.location)
        return [
            _Wanted(path=top / below if below else top, below=below, size=size, changed_ns=changed_ns)
            for below, size, changed_ns, *_ in self._room.body(ref)["entries"]
        ]

    def _lent(self, ref: EvidenceRef, part: Part) -> _Lent:
        key = _key(ref, part)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        files = tuple(self._wanted(ref, part))
        with self._lock:
            if key not in self._known:
                hashed = self._hashing.submit(lambda: tuple(_file(each) for each in files))
                self._known[key] = _Lent(files, hashed)
                while len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
            return self._known[key]

    def _forget(self, ref: EvidenceRef, part: Part) -> None:
        with self._lock, suppress(KeyError):
            del self._known[_key(ref, part)]


def _key(ref: EvidenceRef, part: Part) -> tuple[str, str, Part]:
    if part == "reading" and ref.reading is not None:
        return ref.reading.digest, ref.reading.location, part
    return ref.manifest_digest, ref.location, part


def _of_reading(ref: EvidenceRef) -> list[_Wanted]:
    if ref.reading is None:
        return []
    place = Path(ref.reading.location)
    try:
        told: dict[str, Any] = json.loads((place / INDEX).read_bytes().decode("utf-8", "surrogatepass"))
        texts = sorted(each["text"] for each in told.get("files", {}).values() if each.get("text"))
        paths = [place / name for name in (INDEX, *texts)]
        return [
            _Wanted(path=path, below=path.name, size=path.stat().st_size, changed_ns=None) for path in paths
        ]
    except (OSError, ValueError) as error:
        raise EvidenceChanged(f"the reading of evidence {ref.name!r} cannot be read: {error}") from error


def _file(wanted: _Wanted) -> EvidenceFile:
    total = hashlib.sha256()
    try:
        descriptor, found = wanted.opened()
    except OSError as error:
        return EvidenceFile(
            path=wanted.below,
            size_bytes=wanted.size,
            changed_ns=wanted.changed_ns or 0,
            digest=total.hexdigest(),
            unreadable=error.errno or 5,
        )
    with os.fdopen(descriptor, "rb", buffering=0) as opened:
        while block := opened.read(_BLOCK):
            total.update(block)
    return EvidenceFile(
        path=wanted.below, size_bytes=wanted.size, changed_ns=found.st_mtime_ns, digest=total.hexdigest()
    )


def _piece(wanted: _Wanted, *, offset: int, most: int) -> bytes:
    try:
        descriptor, _ = wanted.opened()
    except OSError as error:
        raise EvidenceChanged(f"evidence {str(wanted.path)!r} cannot be read any more: {error}") from error
    try:
        pieces, at = list[bytes](), offset
        while at < offset + most and (block := os.pread(descriptor, min(_BLOCK, offset + most - at), at)):
            pieces.append(block)
            at += len(block)
    finally:
        os.close(descriptor)
    return b"".join(pieces)
