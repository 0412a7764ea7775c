"""What a home keeps by content: files under the hash of their bytes, trees as links to them. Private, written once, never changed.

`sync` makes durable what was kept since the last time; whoever hands out a reference to it calls that first.
"""

import errno
import filecmp
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from controlplane.adapters.private_files import make_folder
from controlplane.adapters.unsynced import Unsynced, sync
from controlplane.errors import Unavailable
from rlm_worker.contracts import digest

_BLOCK = 1 << 20
#: From here on a file is on the disk before it has its name; smaller ones are read again when the same content comes again.
_LARGE = 1 << 20
#: Whoever may enter the store may read what is in it, and its folder lets nobody else in: sandboxes get single pieces of it.
_FILE, _FOLDER = 0o444, 0o755
#: The same content is the same file to the second, wherever and whenever it was brought in.
_TIME = (0, 0)


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, kw_only=True)
class Blob:
    """A file of the store."""

    digest: str
    size_bytes: int
    path: Path


class ContentStore:
    """Files and trees by content."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unsynced = Unsynced(folder)

    def sync(self) -> None:
        """Return when all that was kept is on the disk, with its names."""
        with self._writing():
            self._unsynced.sync()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """What goes wrong here is this disk's fault, and not that of what is being kept."""
        try:
            yield
        except OSError as error:
            raise Unavailable(
                f"the disk did not take what was to be kept in {str(self._folder)!r} ({error.strerror}): "
                "nothing refers to it; see to the disk and try again"
            ) from error

    def owe(self, *paths: Path) -> None:
        """Count files and folders that others placed beside the store among what `sync` makes durable."""
        self._unsynced.add(*paths)

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """A folder on the store's file system for what is not whole yet."""
        make_folder(self._folder)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=self._folder))
        try:
            yield draft
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def keep(self, blocks: Iterable[bytes]) -> Blob:
        """Keep bytes as they come. What raises on the way leaves nothing behind."""
        with self.draft() as draft:
            total, size = hashlib.sha256(), 0
            with (draft / "content").open("wb") as opened:
                for block in blocks:
                    total.update(block)
                    size += len(block)
                    with self._writing():
                        opened.write(block)
                with self._writing():
                    opened.flush()
            with self._writing():
                return self._enter(draft / "content", total.hexdigest(), size)

    def keep_file(self, path: Path) -> Blob:
        """Keep a copy of a file."""
        with path.open("rb") as opened:
            return self.keep(blocks_of(opened))

    def digest_of(self, path: Path) -> str:
        """The digest under which a file's content would be kept."""
        total = hashlib.sha256()
        with path.open("rb") as opened:
            for block in blocks_of(opened):
                total.update(block)
        return total.hexdigest()

    def find(self, content: str) -> Blob | None:
        path = self._blob(content)
        return Blob(digest=content, size_bytes=path.stat().st_size, path=path) if path.is_file() else None

    def tree(self, files: Mapping[str, Blob]) -> Path:
        """A folder with these files by their paths, which must be safe; the same files are the same folder."""
        mark = digest([[path, files[path].digest] for path in sorted(files)])
        place = self._folder / "trees" / mark
        if place.is_dir():
            self._unsynced.add(place.parent, *_folders_of(place, files))
            return place
        make_folder(place.parent)
        with self.draft() as draft:
            root = draft / "tree"
            _open_folder(root)
            for path, blob in files.items():
                _open_folders(root, path)
                link(blob.path, root / path)
            try:
                root.rename(place)
            except OSError:
                if not place.is_dir():  # another process was faster: its tree is the same
                    raise
        self._unsynced.add(place.parent, *_folders_of(place, files))
        return place

    def _blob(self, content: str) -> Path:
        return self._folder / "blobs" / content[:2] / content

    def _enter(self, fresh: Path, content: str, size: int) -> Blob:
        place = self._blob(content)
        if not _is_kept(place, fresh, size):
            fresh.chmod(_FILE)
            os.utime(fresh, _TIME)
            make_folder(place.parent)
            if size >= _LARGE:
                sync(fresh)
            fresh.replace(place)
        self._unsynced.add(place, place.parent)
        return Blob(digest=content, size_bytes=size, path=place)


def _is_kept(place: Path, fresh: Path, size: int) -> bool:
    """Whether the same bytes lie there: a small file that lost its own to a power cut has its name, and may have its size."""
    if not place.is_file() or place.stat().st_size != size:
        return False
    return size >= _LARGE or filecmp.cmp(place, fresh, shallow=False)


def _folders_of(root: Path, paths: Iterable[str]) -> set[Path]:
    """A tree's own folders: links of theirs have to be as durable as what they lead to."""
    return {root, *(root / parent for path in paths for parent in Path(path).parents)}


def blocks_of(opened: Readable) -> Iterator[bytes]:
    while block := opened.read(_BLOCK):
        yield block


def link(blob: Path, target: Path) -> None:
    """The same file under a second name; a copy where a file can have no more of them."""
    try:
        os.link(blob, target)
    except OSError as error:
        if error.errno not in (errno.EMLINK, errno.EXDEV, errno.EPERM):
            raise
        shutil.copyfile(blob, target)
        target.chmod(_FILE)
        os.utime(target, _TIME)


def _open_folders(root: Path, path: str) -> None:
    place = root
    for part in path.split("/")[:-1]:
        place /= part
        _open_folder(place)


def _open_folder(place: Path) -> None:
    if not place.is_dir():
        place.mkdir()
        place.chmod(_FOLDER)
