"""Evidence that was fetched, kept by content for the next job: bounded, the longest unused goes first, safe under several processes.

blobs/ab/SHA256.TIME    the files, each once for its content and time
entries/KEY/content     evidence as it is mounted: links to blobs
entries/KEY/lock        held (shared) by whoever uses the entry, alone by whoever removes it
incoming/SHA256.part    files on their way, as far as they have come
"""

import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from rlm_worker.contracts.remote import EvidenceFile

_FILE, _FOLDER = 0o444, 0o755
_BLOCK = 1 << 20
#: What nobody went on fetching for so long is thrown away.
_STALE_SECONDS = 86_400
_AGAIN_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Evidence in the cache; it stays for as long as it is held."""

    folder: Path
    _lock: IO[bytes]

    @property
    def content(self) -> Path:
        return self.folder / "content"

    @property
    def reading(self) -> Path:
        return self.folder / "reading"

    def facts(self) -> Any:
        return json.loads((self.folder / "facts.json").read_bytes())

    def close(self) -> None:
        self._lock.close()


class EvidenceCache:
    """One folder, for all workers of one user on this machine."""

    def __init__(self, folder: Path, *, most_bytes: int) -> None:
        self._blobs, self._entries = folder / "blobs", folder / "entries"
        self._incoming = folder / "incoming"
        self._most = most_bytes
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in (self._blobs, self._entries, self._incoming):
            part.mkdir(mode=0o755, exist_ok=True)

    def entry(self, key: str) -> Entry | None:
        """An entry, held until it is closed."""
        folder = self._entries / key
        try:
            lock = (folder / "lock").open("rb")
        except FileNotFoundError:
            return None
        fcntl.flock(lock, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if (folder / "lock").stat().st_ino == os.fstat(lock.fileno()).st_ino:
                os.utime(folder / "lock")
                return Entry(folder=folder, _lock=lock)
        # It was removed in between.
        lock.close()
        return None

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """A folder for an entry that is not whole yet."""
        folder = Path(tempfile.mkdtemp(prefix=".draft-", dir=self._entries))
        folder.chmod(_FOLDER)
        with (folder / "lock.new").open("xb") as lock:
            # Held before it has its name: a lock that is found and free belongs to a process that died.
            fcntl.flock(lock, fcntl.LOCK_SH)
            (folder / "lock.new").rename(folder / "lock")
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)

    def enter(self, draft: Path, key: str) -> None:
        """A draft that is whole becomes an entry; one that is there already stays."""
        try:
            draft.rename(self._entries / key)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise

    # ── files ────────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def fresh(self, content: bytes) -> Iterator[Path]:
        """A file of its own with bytes that have just come."""
        descriptor, name = tempfile.mkstemp(prefix="fresh-", suffix=".part", dir=self._incoming)
        with os.fdopen(descriptor, "wb") as opened:
            opened.write(content)
        try:
            yield Path(name)
        finally:
            Path(name).unlink(missing_ok=True)

    def link(self, file: EvidenceFile, target: Path) -> bool:
        """Place a file that is here; False when it is not."""
        blob = self._blob(file)
        try:
            os.link(blob, target)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno != errno.EMLINK:
                raise
            shutil.copy2(blob, target)
        return True

    def keep(self, file: EvidenceFile, fresh: Path, target: Path) -> None:
        """Place a file that has just come, and keep it for others. Its bytes were checked."""
        fresh.chmod(_FILE)
        os.utime(fresh, ns=(file.changed_ns, file.changed_ns))
        # First linked, then kept: what nothing is linked to may be removed at any time.
        os.link(fresh, target)
        blob = self._blob(file)
        blob.parent.mkdir(mode=_FOLDER, exist_ok=True)
        fresh.rename(blob)

    def _blob(self, file: EvidenceFile) -> Path:
        return self._blobs / file.digest[:2] / f"{file.digest}.{file.changed_ns}"

    @contextmanager
    def incoming(self, file: EvidenceFile, enough: threading.Event) -> Iterator[Path]:
        """The part of a file that has come so far, for one process at a time."""
        part = self._incoming / f"{file.digest}.part"
        while not enough.is_set():
            with part.open("ab") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    enough.wait(_AGAIN_SECONDS)
                    continue
                if part.exists() and part.stat().st_ino == os.fstat(lock.fileno()).st_ino:
                    yield part
                    return
        yield part

    # ── bounds ───────────────────────────────────────────────────────────────────────────────────────────────

    def trim(self) -> None:
        """Remove what was not used for longest until the rest fits; what is in use stays, whatever its size."""
        self._remove_stale()
        total = self._remove_unlinked()
        if total <= self._most:
            return
        entries = [folder for folder in self._entries.iterdir() if not folder.name.startswith(".")]
        for folder in sorted(entries, key=_used):
            if _remove(folder):
                total = self._remove_unlinked()
            if total <= self._most:
                return

    def _remove_unlinked(self) -> int:
        """Remove files that no entry has, when there are too many; the size of those that stay."""
        found = list(_sized(self._blobs))
        total = sum(stat.st_size for _, stat in found)
        for path, stat in found:
            if total <= self._most:
                break
            if stat.st_nlink == 1:
                with suppress(FileNotFoundError):
                    path.unlink()
                total -= stat.st_size
        return total

    def _remove_stale(self) -> None:
        """What processes that died left behind."""
        for folder in self._entries.glob(".*"):
            _remove(folder)
        oldest = time.time() - _STALE_SECONDS
        for part in self._incoming.glob("*.part"):
            with suppress(FileNotFoundError):
                if part.stat().st_mtime < oldest:
                    part.unlink()


def _sized(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Every file with what is known of it; another process may remove some meanwhile."""
    for shelf in folder.iterdir():
        for path in shelf.iterdir():
            with suppress(FileNotFoundError):
                yield path, path.stat()


def _used(folder: Path) -> float:
    try:
        return (folder / "lock").stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _remove(folder: Path) -> bool:
    """Remove an entry or a draft that nobody holds."""
    try:
        lock = (folder / "lock").open("rb")
    except FileNotFoundError:
        # A draft that has just been made, or one that is being removed; an empty one is left behind by a crash.
        with suppress(OSError):
            if folder.stat().st_mtime < time.time() - _STALE_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
        return False
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        gone = folder.with_name(f".gone-{folder.name.lstrip('.')}-{os.getpid()}")
        with suppress(OSError):
            folder.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
            return True
    return False


def digest_of(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb", buffering=0) as opened:
        while block := opened.read(_BLOCK):
            total.update(block)
    return total.hexdigest()


def make_folders(root: Path, below: str) -> None:
    """The folders above a file, open to whoever the sandbox runs as."""
    place = root
    for part in below.split("/")[:-1]:
        place /= part
        if not place.is_dir():
            place.mkdir()
            place.chmod(_FOLDER)
