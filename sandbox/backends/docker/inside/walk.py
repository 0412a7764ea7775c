"""The workspace as a series of records, step by step. Follows no link, opens nothing but plain files, never waits.

What it says is checked again by the host: code inside may change the tree, or this process, at any time.
"""

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.backends.docker.inside import records
from sandbox.globs import Globs

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PATH_BYTES, _SHOWN_BYTES = 4096, 600
#: One descriptor is open per level of the walk, whatever a policy asks for.
_DEPTH = 200
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class _Unfit(Exception):
    """An entry that is not sent; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    files: int
    total_bytes: int
    file_bytes: int
    depth: int
    entries: int
    only: tuple[str, ...]


@dataclass
class _Level:
    """A directory whose entries are being looked at."""

    fd: int
    path: bytes
    names: Iterator[bytes]


class Walk:
    """One collection. Each step of `steps` does little, so that the relay can do other work in between."""

    def __init__(self, top: str, *, limits: Limits) -> None:
        self._top = top
        self._limits = limits
        self._depth = min(limits.depth, _DEPTH)
        self._globs = Globs(tuple(limits.only))
        self._entries = 0
        self._files = 0
        self._bytes = 0

    def steps(self) -> Iterator[bytes]:
        """Yield encoded records; the last says that all is sent."""
        levels: list[_Level] = []
        try:
            yield from self._enter(levels, os.open(self._top, _DIRECTORY), b"")
            while levels:
                level = levels[-1]
                name = next(level.names, None)
                if name is None:
                    os.close(levels.pop().fd)
                    continue
                path = level.path + name
                try:
                    yield from self._visit(levels, name, path)
                except _Unfit as reason:
                    yield _skipped(path, str(reason))
                except OSError as error:
                    yield _skipped(path, f"it cannot be read: {error.strerror}")
        finally:
            for level in levels:
                os.close(level.fd)
        yield records.encode(records.COLLECTED)

    def _enter(self, levels: list[_Level], fd: int, path: bytes) -> Iterator[bytes]:
        names: list[bytes] = []
        levels.append(_Level(fd, path, iter(names)))
        most = self._limits.entries
        with os.scandir(fd) as listing:
            for entry in listing:
                if self._entries >= most:
                    reason = (
                        f"there are more than {most} entries: the rest of this directory was not looked at"
                    )
                    yield _skipped(path, reason)
                    break
                self._entries += 1
                names.append(os.fsencode(entry.name))
        levels[-1].names = iter(sorted(names))

    def _visit(self, levels: list[_Level], name: bytes, path: bytes) -> Iterator[bytes]:
        here = levels[-1].fd
        status = os.stat(name, dir_fd=here, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            if len(levels) > self._depth:
                raise _Unfit(f"it lies deeper than {self._depth} directories")
            yield from self._enter(levels, os.open(name, _DIRECTORY, dir_fd=here), path + b"/")
        elif self._globs.match(os.fsdecode(path)):
            # Asked before it is opened, so that no pipe and no device is touched; the open file is asked again.
            self._check(status, path)
            fd = os.open(name, _FILE, dir_fd=here)
            try:
                self._check(os.fstat(fd), path)
                yield from self._send(fd, path)
            finally:
                os.close(fd)

    def _check(self, status: os.stat_result, path: bytes) -> None:
        limits, size = self._limits, status.st_size
        if not stat.S_ISREG(status.st_mode):
            raise _Unfit(f"it is {_KINDS.get(stat.S_IFMT(status.st_mode), 'no regular file')}")
        if status.st_nlink != 1:
            raise _Unfit(f"it has {status.st_nlink} links" if status.st_nlink else "it vanished")
        if self._files >= limits.files:
            raise _Unfit(f"there are more than {limits.files} files")
        if size > limits.file_bytes:
            raise _Unfit(f"it holds {size} bytes, more than the {limits.file_bytes} of one file")
        if self._bytes + size > limits.total_bytes:
            raise _Unfit(f"with its {size} bytes all files would hold more than {limits.total_bytes}")
        if len(path) > _PATH_BYTES:
            raise _Unfit(f"its path is longer than {_PATH_BYTES} bytes")

    def _send(self, fd: int, path: bytes) -> Iterator[bytes]:
        """Send as many bytes as the file holds now; what is appended meanwhile is not waited for."""
        self._files += 1
        left = os.fstat(fd).st_size
        yield records.encode(records.FILE, path)
        while left > 0 and (data := os.read(fd, min(left, records.MOST_BYTES))):
            left -= len(data)
            self._bytes += len(data)
            yield records.encode(records.DATA, data)
        yield records.encode(records.DATA)


def _skipped(path: bytes, reason: str) -> bytes:
    shown = path[:_SHOWN_BYTES].hex()
    return records.encode(records.SKIPPED, json.dumps([shown, reason]).encode())
