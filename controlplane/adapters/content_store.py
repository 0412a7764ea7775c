"""What a home keeps by content: files under the hash of their bytes, trees as links to them. Private, written once, never changed."""

import errno
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
from rlm_worker.contracts import digest

_BLOCK = 1 << 20
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
                    opened.write(block)
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
        return place

    def _blob(self, content: str) -> Path:
        return self._folder / "blobs" / content[:2] / content

    def _enter(self, fresh: Path, content: str, size: int) -> Blob:
        place = self._blob(content)
        # A file that lost its bytes to a power cut has its name and not its size.
        if not place.is_file() or place.stat().st_size != size:
            fresh.chmod(_FILE)
            os.utime(fresh, _TIME)
            make_folder(place.parent)
            fresh.replace(place)
        return Blob(digest=content, size_bytes=size, path=place)


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
