"""Evidence: staged by a manifest of what lies there, without reading a byte; sealed by content when a job has used it."""

import hashlib
import json
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controlplane.adapters.private_files import make_folder, write_file
from controlplane.errors import InvalidRequest
from rlm_worker.contracts import EvidenceRef, canonical, digest

MAX_FILES = 200_000
_BLOCK = 4 << 20


@dataclass(frozen=True, kw_only=True)
class StagedEvidence:
    """A reference for the job and where its manifest is kept."""

    ref: EvidenceRef
    manifest: Path


#: Relative path, size, time of change, mode.
Entry = tuple[str, int, int, int]


class EvidenceRoom:
    """Manifests and seals of one home."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "evidence"

    def stage(self, paths: Sequence[Path]) -> tuple[StagedEvidence, ...]:
        """Take stock of files and folders. Costs the same for a byte and for a gigabyte."""
        taken: set[str] = set()
        return tuple(self._stage(Path(path), taken) for path in paths)

    def _stage(self, path: Path, taken: set[str]) -> StagedEvidence:
        place, kind, entries = _survey(path)
        body = {"kind": kind, "entries": entries}
        mark = digest(body)
        name = _name_for(place, taken)
        taken.add(name)
        ref = EvidenceRef(
            name=name,
            kind="tree" if kind == "tree" else "file",
            location=str(place),
            manifest_digest=mark,
            files=len(entries),
            size_bytes=sum(entry[1] for entry in entries),
        )
        return StagedEvidence(ref=ref, manifest=_write_once(self._folder / f"{mark}.json", canonical(body)))

    def seal(self, ref: EvidenceRef, stop: threading.Event) -> str | None:
        """Digest of the contents in the order of the manifest; None when stopped. Kept: evidence is hashed once."""
        key = digest([ref.manifest_digest, ref.location])
        kept = self._folder / "sealed" / f"{key}.json"
        if kept.is_file() and not self.changed(ref):
            return str(json.loads(kept.read_text())["content_digest"])
        total = hashlib.sha256()
        for name, *_ in self._entries(ref):
            content = _content_digest(_file_of(ref, name), stop)
            if content is None:
                return None
            total.update(canonical([name, content]))
        sealed = total.hexdigest()
        if not self.changed(ref):
            _write_once(kept, canonical({"content_digest": sealed, "manifest_digest": ref.manifest_digest}))
        return sealed

    def changed(self, ref: EvidenceRef) -> bool:
        """True when what lies there is no longer what was staged."""
        try:
            _, kind, entries = _survey(Path(ref.location))
        except InvalidRequest:
            return True
        return digest({"kind": kind, "entries": entries}) != ref.manifest_digest

    def _entries(self, ref: EvidenceRef) -> list[Any]:
        manifest = self._folder / f"{ref.manifest_digest}.json"
        try:
            body = json.loads(manifest.read_bytes().decode("utf-8", "surrogatepass"))
        except (OSError, ValueError) as error:
            raise InvalidRequest(f"the manifest of evidence {ref.name!r} cannot be read: {error}") from error
        entries: list[Any] = body["entries"]
        return entries


def _survey(path: Path) -> tuple[Path, str, list[Entry]]:
    try:
        place = path.resolve(strict=True)
        str(place).encode()
        found = place.stat()
        if stat.S_ISDIR(found.st_mode):
            return place, "tree", sorted(_walk(place))
    except OSError as error:
        raise InvalidRequest(f"evidence {str(path)!r} cannot be read: {error.strerror or error}") from error
    except UnicodeEncodeError:
        raise InvalidRequest(f"evidence {str(path)!r} has a name that is not text: rename it") from None
    if not stat.S_ISREG(found.st_mode):
        raise InvalidRequest(f"evidence {str(path)!r} is neither a file nor a folder")
    if not os.access(place, os.R_OK):
        raise InvalidRequest(f"evidence {str(path)!r} cannot be read: Permission denied")
    return place, "file", [("", found.st_size, found.st_mtime_ns, found.st_mode)]


def _walk(root: Path) -> Iterator[Entry]:
    """Every regular file below a folder; links and special files are not evidence."""
    count = 0
    folders = [("", str(root))]
    while folders:
        below, folder = folders.pop()
        with os.scandir(folder) as items:
            for item in items:
                found = item.stat(follow_symlinks=False)
                name = f"{below}{item.name}"
                if stat.S_ISDIR(found.st_mode):
                    folders.append((f"{name}/", item.path))
                elif stat.S_ISREG(found.st_mode):
                    count += 1
                    yield name, found.st_size, found.st_mtime_ns, found.st_mode
        if count > MAX_FILES:
            raise InvalidRequest(
                f"evidence {str(root)!r} holds more than {MAX_FILES:,} files: name the folders that matter"
            )


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


def _name_for(place: Path, taken: set[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", place.name)
    base = re.sub(r"^[^A-Za-z0-9]+", "", plain)[:190].rstrip() or "evidence"
    if base not in taken:
        return base
    stem, dot, suffix = base.rpartition(".")
    stem, suffix = (stem, dot + suffix) if stem else (base, "")
    number = next(number for number in range(2, len(taken) + 3) if f"{stem}-{number}{suffix}" not in taken)
    return f"{stem}-{number}{suffix}"


def _write_once(path: Path, content: bytes) -> Path:
    """Write a file that is named by its content: whole or not at all, and not twice."""
    if path.is_file():
        return path
    make_folder(path.parent)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    write_file(fresh, content)
    fresh.replace(path)
    return path
