"""A walk over a tree that hostile code made and may change at any time. Follows no link, opens only plain files, never waits.

Standard library only: it is used by the host, and inside containers.
"""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from sandbox.globs import Globs

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PATH_BYTES = 4096
#: One descriptor is open per level of the walk, whatever a policy asks for.
_DEPTH = 200
#: Whoever walks is out of descriptors: no fault of the tree, and a collection without half of its files would be a lie.
_OWN_TROUBLES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory that was a file a moment ago",
}


class Bounds(Protocol):
    """How much of a tree is taken."""

    @property
    def files(self) -> int: ...
    @property
    def total_bytes(self) -> int: ...
    @property
    def file_bytes(self) -> int: ...
    @property
    def depth(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def only(self) -> tuple[str, ...]: ...


class Unfit(Exception):
    """An entry that is not taken; the message is the reason."""


class troubles:  # noqa: N801 - reads as a clause
    """What the tree does to its reader becomes the reason to skip an entry; the reader's own troubles pass through."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError) and error.errno not in _OWN_TROUBLES:
            raise Unfit(_reason(error)) from None


def _reason(error: OSError) -> str:
    if error.errno in {errno.ENOENT, errno.ESTALE}:
        return "it vanished"
    if error.errno in {errno.ELOOP, errno.ENOTDIR}:
        return "it became something else while it was opened"
    return f"it cannot be read: {os.strerror(error.errno or errno.EIO)}"


@dataclass
class Tally:
    """What was taken so far, and whether one file more may be."""

    bounds: Bounds
    files: int = 0
    total_bytes: int = 0
    entries: int = 0

    def check(self, status: os.stat_result, path: bytes) -> None:
        bounds, size = self.bounds, status.st_size
        if not stat.S_ISREG(status.st_mode):
            raise Unfit(f"it is {_KINDS.get(stat.S_IFMT(status.st_mode), 'no regular file')}")
        if status.st_nlink != 1:
            raise Unfit(f"it has {status.st_nlink} links" if status.st_nlink else "it vanished")
        if self.files >= bounds.files:
            raise Unfit(f"there are more than {bounds.files} files")
        if size > bounds.file_bytes:
            raise Unfit(f"it holds {size} bytes, more than the {bounds.file_bytes} of one file")
        if self.total_bytes + size > bounds.total_bytes:
            raise Unfit(f"with its {size} bytes all files would hold more than {bounds.total_bytes}")
        if len(path) > _PATH_BYTES:
            raise Unfit(f"its path is longer than {_PATH_BYTES} bytes")

    def count(self, size_bytes: int) -> None:
        self.files += 1
        self.total_bytes += size_bytes


@dataclass(frozen=True)
class Found:
    """A plain file within the bounds, open until the next step is taken."""

    fd: int
    path: bytes


@dataclass(frozen=True)
class Passed:
    """An entry that was passed by."""

    path: bytes
    reason: str


Step = Found | Passed


@dataclass
class _Level:
    """A directory whose entries are being looked at."""

    fd: int
    path: bytes
    names: Iterator[bytes]


class Walk:
    """One walk, in the order of names. Whoever takes a file counts it in the tally before the next step."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._depth = min(tally.bounds.depth, _DEPTH)
        self._globs = Globs(tuple(tally.bounds.only))
        self._levels: list[_Level] = []

    def steps(self, directory_fd: int) -> Iterator[Step]:
        """Yield what lies below an open directory. Raises OSError only for the reader's own troubles."""
        try:
            yield from self._enter(os.open(".", DIRECTORY, dir_fd=directory_fd), b"")
            while self._levels:
                level = self._levels[-1]
                name = next(level.names, None)
                if name is None:
                    os.close(self._levels.pop().fd)
                    continue
                path = level.path + name
                try:
                    yield from self._visit(name, path)
                except Unfit as reason:
                    yield Passed(path, str(reason))
        finally:
            for level in self._levels:
                os.close(level.fd)

    def _visit(self, name: bytes, path: bytes) -> Iterator[Step]:
        here = self._levels[-1].fd
        with troubles():
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            if len(self._levels) > self._depth:
                raise Unfit(f"it lies deeper than {self._depth} directories")
            with troubles():
                opened = os.open(name, DIRECTORY, dir_fd=here)
            yield from self._enter(opened, path + b"/")
        elif self._globs.match(os.fsdecode(path)):
            # Asked before it is opened, so that no pipe and no device is touched; the open file is asked again.
            self._tally.check(status, path)
            with troubles():
                fd = os.open(name, _FILE, dir_fd=here)
            try:
                self._tally.check(os.fstat(fd), path)
                yield Found(fd, path)
            finally:
                os.close(fd)

    def _enter(self, fd: int, path: bytes) -> Iterator[Step]:
        """Go down into a directory, with no more of its names than may still be looked at."""
        self._levels.append(_Level(fd, path, iter(())))
        names: list[bytes] = []
        is_cut = False
        with troubles(), os.scandir(fd) as found:
            for entry in found:
                if is_cut := self._tally.entries >= self._tally.bounds.entries:
                    break
                self._tally.entries += 1
                names.append(os.fsencode(entry.name))
        self._levels[-1].names = iter(sorted(names))
        if is_cut:
            most = self._tally.bounds.entries
            yield Passed(
                path, f"there are more than {most} entries: the rest of this directory was not looked at"
            )
