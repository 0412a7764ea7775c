"""The folder of model files on this machine: what is there, whether it is what was verified, and who may change it."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rlm_worker.models.catalogue import CATALOGUE, CatalogueEntry


@dataclass(frozen=True, kw_only=True, slots=True)
class Stocked:
    """One line of `models list`. Verified: unchanged since its digest was checked, by size and time of change."""

    entry: CatalogueEntry
    is_installed: bool
    is_verified: bool
    partial_bytes: int


class Shelf:
    """Model files of one machine user. Every change happens under the entry's lock, so two pulls become one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, entry: CatalogueEntry) -> Path:
        return self.folder / entry.file_name

    def partial_dir(self, entry: CatalogueEntry) -> Path:
        return self.folder / f"{entry.name}.partial"

    def is_installed(self, entry: CatalogueEntry) -> bool:
        try:
            return self.path(entry).stat().st_size == entry.size_bytes
        except OSError:
            return False

    def is_verified(self, entry: CatalogueEntry) -> bool:
        """True when the file is the one whose digest was checked; reads no more than its directory entry."""
        try:
            mark = json.loads(self._mark(entry).read_text())
            return bool(mark == _mark_of(entry, self.path(entry)))
        except (OSError, ValueError):
            return False

    def put(self, entry: CatalogueEntry, file: Path) -> Path:
        """Takes in a file whose digest was just checked."""
        target = self.path(entry)
        with file.open("rb+") as opened:
            os.fsync(opened.fileno())
        file.replace(target)
        mark = self._mark(entry)
        draft = mark.with_suffix(".draft")
        draft.write_text(json.dumps(_mark_of(entry, target)))
        draft.replace(mark)
        shutil.rmtree(self.partial_dir(entry), ignore_errors=True)
        return target

    def remove(self, entry: CatalogueEntry) -> bool:
        """Removes the file and what a broken pull left of it. True when there was something."""
        with self.locked(entry):
            there = self.path(entry).exists() or self.partial_dir(entry).exists()
            for file in (self.path(entry), self._mark(entry)):
                file.unlink(missing_ok=True)
            shutil.rmtree(self.partial_dir(entry), ignore_errors=True)
        return there

    def stock(self, catalogue: tuple[CatalogueEntry, ...] = CATALOGUE) -> list[Stocked]:
        return [
            Stocked(
                entry=entry,
                is_installed=self.is_installed(entry),
                is_verified=self.is_verified(entry),
                partial_bytes=_size_of(self.partial_dir(entry)),
            )
            for entry in catalogue
        ]

    @contextmanager
    def locked(self, entry: CatalogueEntry, *, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Holds the entry alone; waits for whoever else does. The system lets go when its holder dies."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f".{entry.name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _mark(self, entry: CatalogueEntry) -> Path:
        return self.folder / f".{entry.name}.verified"


def digest_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _mark_of(entry: CatalogueEntry, file: Path) -> dict[str, str | int]:
    found = file.stat()
    return {"sha256": entry.sha256, "size_bytes": found.st_size, "changed_ns": found.st_mtime_ns}


def _size_of(folder: Path) -> int:
    total = 0
    for place, _, files in os.walk(folder):
        for file in files:
            with suppress(OSError):  # a pull may be at work
                total += Path(place, file).stat().st_size
    return total
