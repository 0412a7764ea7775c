"""Brings evidence to where it can be mounted: what lies on this machine stays there, everything else is kept by content."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from controlplane.adapters.content_store import Blob, ContentStore, blocks_of
from controlplane.adapters.private_files import replace_file
from controlplane.adapters.sources import remote
from controlplane.adapters.sources.archives import Unpacker, is_archive
from controlplane.adapters.sources.bounds import Bounds, Tally
from controlplane.adapters.sources.git import Repository
from controlplane.adapters.sources.packed import packing_of, unpacked_blocks, unpacked_name
from controlplane.adapters.sources.paths import safe_path
from controlplane.adapters.sources.typed import Source
from controlplane.adapters.survey import Survey, survey
from controlplane.errors import InvalidRequest
from rlm_worker.contracts import digest

#: Where the artifacts of a job lie, by their paths and with their digests.
ArtifactsOf = Callable[[str], Mapping[str, tuple[Path, str]]]


@dataclass(frozen=True, kw_only=True)
class Placed:
    """Evidence at a place where it can be mounted."""

    place: Path
    name: str
    origin: str = ""
    notes: tuple[str, ...] = ()
    is_plain: bool = False
    #: What was found there, if somebody has walked it already.
    surveyed: Survey | None = None


class Intake:
    """Everything that can be given as evidence."""

    def __init__(
        self,
        folder: Path,
        store: ContentStore,
        *,
        artifacts_of: ArtifactsOf | None = None,
        stdin: BinaryIO | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self._folder = folder
        self._store = store
        self._artifacts_of = artifacts_of
        self._stdin = stdin
        self._bounds = bounds or Bounds()

    def bring(self, source: Source, *, snapshot: bool = False) -> Placed:
        """Bring one source in; raises InvalidRequest with what is wrong with it."""
        match source.kind:
            case "stdin":
                return self._standard_input(source)
            case "git":
                return self._git(source)
            case "url":
                return self._url(source)
            case "job":
                return self._job(source)
            case "local":
                return self._local(source, snapshot=snapshot)

    def _tally(self, what: str, *, packed_bytes: int | None = None) -> Tally:
        return Tally(what=what, bounds=self._bounds, packed_bytes=packed_bytes)

    def _standard_input(self, source: Source) -> Placed:
        tally = self._tally("standard input")
        blob = self._store.keep(tally.count(blocks_of(self._stdin or sys.stdin.buffer)))
        return Placed(place=blob.path, name=source.name, origin="standard input")

    def _git(self, source: Source) -> Placed:
        repository = Repository(source.path)
        commit = repository.commit(source.part)
        shown = source.path.resolve()
        origin = f"git {shown} at {commit}"

        def make() -> tuple[Path, tuple[str, ...]]:
            tally = self._tally(f"git repository {str(shown)!r}")
            files = repository.keep(commit, self._store, tally)
            return self._tree(files, origin), tally.all_notes()

        place, notes = self._once(["git", str(shown), commit], make)
        name = source.name or shown.name.removesuffix(".git")
        return Placed(place=place, name=name, origin=origin, notes=notes)

    def _url(self, source: Source) -> Placed:
        shown = remote.shown_url(source.address)
        tally = self._tally(f"evidence {shown!r}")
        found = remote.keep(source.address, self._store, tally)
        name = source.name or remote.name_of(source.address) or "download"
        if isinstance(found, Blob):
            return self.opened(found.path, name, origin=shown)
        return Placed(place=self._tree(found, shown), name=name, origin=shown, notes=tally.all_notes())

    def _job(self, source: Source) -> Placed:
        if self._artifacts_of is None:
            raise InvalidRequest("artifacts of a job cannot be had here: name a file instead")
        artifacts = self._artifacts_of(source.address)
        chosen = {
            path: kept
            for path, kept in artifacts.items()
            if not source.part or path == source.part or path.startswith(f"{source.part.rstrip('/')}/")
        }
        if not chosen:
            what = f"no artifact {source.part!r}" if artifacts else "no artifacts"
            raise InvalidRequest(f"job {source.address!r} has {what}: see custody artifacts {source.address}")
        tally = self._tally(f"job {source.address!r}")
        files = {path: self._artifact(path, *kept, tally) for path, kept in chosen.items()}
        origin = f"job {source.address}" + (f", {source.part}" if source.part else "")
        if list(files) == [source.part]:
            return self.opened(files[source.part].path, source.name or Path(source.part).name, origin=origin)
        return Placed(place=self._tree(files, origin), name=source.name or source.address, origin=origin)

    def _artifact(self, path: str, kept: Path, content: str, tally: Tally) -> Blob:
        if safe_path(path) != path:
            raise InvalidRequest(f"the artifact {path!r} has a path that no walk gives: it is refused")
        try:
            with kept.open("rb") as opened:
                blob = self._store.keep(tally.count(blocks_of(opened)))
        except OSError as error:
            raise InvalidRequest(f"the artifact {path!r} is no longer kept in this home: {error}") from error
        if blob.digest != content:
            raise InvalidRequest(f"the kept content of {path!r} is not what the job made: it is refused")
        return blob

    def _local(self, source: Source, *, snapshot: bool) -> Placed:
        found = survey(source.path)
        place, kind, entries = found
        name = source.name or place.name
        if kind == "file" and not source.is_plain and _is_packed(place):
            return self.opened(place, name, origin=f"unpacked from {place}")
        if not snapshot:
            return Placed(place=place, name=name, is_plain=source.is_plain, surveyed=found)
        tally = self._tally(f"evidence {str(place)!r}")
        kept = dict(self._copies(place, [entry[0] for entry in entries], tally))
        copy = kept[""].path if kind == "file" else self._tree(kept, str(place))
        return Placed(place=copy, name=name, origin=f"copy of {place}", is_plain=source.is_plain)

    def _copies(self, place: Path, paths: list[str], tally: Tally) -> Iterator[tuple[str, Blob]]:
        for path in paths:
            tally.entry()
            file = place / path if path else place
            try:
                with file.open("rb") as opened:
                    yield path, self._store.keep(tally.count(blocks_of(opened)))
            except OSError as error:
                raise InvalidRequest(f"evidence {str(file)!r} cannot be read: {error.strerror}") from error

    def opened(self, file: Path, name: str, *, origin: str) -> Placed:
        """A file as it is, or what is packed in it."""
        if is_archive(file, name):
            place, notes = self._once(_state(file), lambda: self._unpacked(file, name))
            return Placed(place=place, name=name, origin=origin, notes=notes)
        packing = packing_of(file, name)
        if packing is None:
            return Placed(place=file, name=name, origin=origin)
        place, notes = self._once(_state(file), lambda: self._unwrapped(file, name, packing))
        return Placed(place=place, name=unpacked_name(name, packing), origin=origin, notes=notes)

    def _unpacked(self, file: Path, name: str) -> tuple[Path, tuple[str, ...]]:
        tally = self._tally(f"the archive {name!r}", packed_bytes=file.stat().st_size)
        unpacker = Unpacker(self._store, tally)
        unpacker.unpack(file, name)
        return self._tree(unpacker.files, f"the archive {name!r}"), tally.all_notes()

    def _unwrapped(self, file: Path, name: str, packing: str) -> tuple[Path, tuple[str, ...]]:
        tally = self._tally(f"the file {name!r}", packed_bytes=file.stat().st_size)
        return self._store.keep(tally.count(unpacked_blocks(file, packing))).path, ()

    def _tree(self, files: Mapping[str, Blob], what: str) -> Path:
        if not files:
            raise InvalidRequest(f"{what} holds no files")
        return self._store.tree(files)

    def _once(
        self, key: list[str], make: Callable[[], tuple[Path, tuple[str, ...]]]
    ) -> tuple[Path, tuple[str, ...]]:
        """What was made for the same key before, as long as it is there."""
        known = self._folder / f"{digest(key)}.json"
        if known.is_file():
            said = json.loads(known.read_bytes())
            if Path(said["place"]).exists():
                return Path(said["place"]), tuple(said["notes"])
        place, notes = make()
        self._store.sync()
        replace_file(known, json.dumps({"place": str(place), "notes": notes}).encode())
        return place, notes


def _is_packed(place: Path) -> bool:
    if not os.access(place, os.R_OK):
        return False
    return is_archive(place, place.name) or packing_of(place, place.name) is not None


def _state(file: Path) -> list[str]:
    found = file.stat()
    return [str(file), str(found.st_size), str(found.st_mtime_ns), str(found.st_ino)]
