"""Files that code left in its workspace, copied out without trusting a name, a link or a size in it."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.escaping import escape_name
from sandbox.globs import Globs
from sandbox.policy import ArtifactLimits

_READ_BYTES = 1 << 20
_SKIPPED_NAMED = 100
_PATH_BYTES = 4096
_SHOWN_CHARACTERS = 300
#: One descriptor is open per level of the walk, whatever a policy asks for.
_DEPTH = 200

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_COPY = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: The host is out of descriptors: no fault of the tree, and a collection without half of its files would be a lie.
_HOSTS_OWN = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a directory that was a file a moment ago",
}


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """One regular file. `path` is for people: relative, with what is not printable UTF-8 escaped."""

    path: str
    # Where its copy lies: below the directory that was given, under a name of the host's choosing.
    file: Path
    size_bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Skipped:
    path: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Collected:
    artifacts: tuple[Artifact, ...] = ()
    # The first of what was left out; `skipped_total` counts them all.
    skipped: tuple[Skipped, ...] = ()
    skipped_total: int = 0


class Unfit(Exception):
    """An entry that is not collected; the message is the reason."""


def copy_out(directory_fd: int, into: Path, limits: ArtifactLimits) -> Collected:
    """Copy the regular files below an open directory, in the order of their names, within the limits.

    What code does to the tree meanwhile changes what is copied, never where from: every step is taken from
    an open directory, and no link is followed. Raises OSError only for the host's own troubles.
    """
    into.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = os.open(into, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return Collection(into, target, limits).take(directory_fd)
    finally:
        os.close(target)


@dataclass
class _Level:
    """A directory whose entries are being looked at."""

    fd: int
    path: bytes
    names: Iterator[bytes]


@dataclass
class Collection:
    """One collection into an open directory: counts, numbers and copies; `copy` raises Unfit for what is not taken."""

    into: Path
    target: int
    limits: ArtifactLimits
    artifacts: list[Artifact] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    skipped_total: int = 0
    entries: int = 0
    total_bytes: int = 0
    numbers: int = 0

    def __post_init__(self) -> None:
        self.globs = Globs(self.limits.only)
        self.depth = min(self.limits.depth, _DEPTH)

    def take(self, directory_fd: int) -> Collected:
        levels: list[_Level] = []
        try:
            self._enter(levels, os.open(".", _DIRECTORY, dir_fd=directory_fd), b"")
            while levels:
                level = levels[-1]
                name = next(level.names, None)
                if name is None:
                    os.close(levels.pop().fd)
                    continue
                path = level.path + name
                try:
                    self._visit(levels, name, path)
                except Unfit as reason:
                    self.skip(path, str(reason))
        finally:
            for level in levels:
                os.close(level.fd)
        return self.collected()

    def collected(self) -> Collected:
        return Collected(
            artifacts=tuple(self.artifacts), skipped=tuple(self.skipped), skipped_total=self.skipped_total
        )

    def _visit(self, levels: list[_Level], name: bytes, path: bytes) -> None:
        here = levels[-1].fd
        with _troubles():
            status = os.stat(name, dir_fd=here, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            if len(levels) > self.depth:
                raise Unfit(f"it lies deeper than {self.depth} directories")
            with _troubles():
                opened = os.open(name, _DIRECTORY, dir_fd=here)
            self._enter(levels, opened, path + b"/")
        elif self.globs.match(os.fsdecode(path)):
            # Asked before it is opened, so that no pipe and no device is touched; the open file is asked again.
            self._check(status)
            with _troubles():
                source = os.open(name, _FILE, dir_fd=here)
            try:
                self.copy(source, path)
            finally:
                os.close(source)

    def _enter(self, levels: list[_Level], fd: int, path: bytes) -> None:
        try:
            names = self._names(fd, path)
        except BaseException:
            os.close(fd)
            raise
        levels.append(_Level(fd, path, iter(names)))

    def _names(self, fd: int, path: bytes) -> list[bytes]:
        """Names of a directory's entries, sorted; no more of them than may still be looked at."""
        names: list[bytes] = []
        if self.entries >= self.limits.entries:
            self.skip(path, self._too_many_entries())
            return names
        with _troubles(), os.scandir(fd) as found:
            for entry in found:
                if self.entries >= self.limits.entries:
                    self.skip(path, self._too_many_entries())
                    break
                self.entries += 1
                names.append(os.fsencode(entry.name))
        return sorted(names)

    def _too_many_entries(self) -> str:
        return (
            f"there are more than {self.limits.entries} entries: the rest of this directory was not looked at"
        )

    def _check(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise Unfit(f"it is {_KINDS.get(stat.S_IFMT(status.st_mode), 'no regular file')}")
        if status.st_nlink != 1:
            raise Unfit(f"it has {status.st_nlink} links" if status.st_nlink else "it vanished")
        if len(self.artifacts) >= self.limits.files:
            raise Unfit(f"there are more than {self.limits.files} files")
        if status.st_size > self.limits.file_bytes:
            raise Unfit(
                f"it holds {status.st_size} bytes, more than the {self.limits.file_bytes} of one file"
            )
        if self.total_bytes + status.st_size > self.limits.total_bytes:
            raise Unfit(
                f"with its {status.st_size} bytes all files would hold more than {self.limits.total_bytes}"
            )

    def copy(self, source: int, path: bytes) -> None:
        """Copy an open file that the guest calls `path`, if it is one plain file within the limits."""
        status = os.fstat(source)
        self._check(status)
        if len(path) > _PATH_BYTES:
            raise Unfit(f"its path is longer than {_PATH_BYTES} bytes")
        name, copy = self._new_copy()
        try:
            sha256 = _copy_bytes(source, copy, status.st_size)
        except BaseException:
            os.unlink(name, dir_fd=self.target)
            raise
        finally:
            os.close(copy)
        self.total_bytes += status.st_size
        self.artifacts.append(
            Artifact(path=escape_name(path), file=self.into / name, size_bytes=status.st_size, sha256=sha256)
        )

    def _new_copy(self) -> tuple[str, int]:
        """A new file under the next number that is free."""
        while True:
            self.numbers += 1
            name = f"{self.numbers:06}"
            with suppress(FileExistsError):
                return name, os.open(name, _COPY, 0o600, dir_fd=self.target)

    def skip(self, path: bytes, reason: str) -> None:
        self.skipped_total += 1
        if len(self.skipped) < _SKIPPED_NAMED:
            shown = escape_name(path[: 2 * _SHOWN_CHARACTERS]) or "."
            cut = shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}…"
            self.skipped.append(Skipped(path=cut, reason=reason))


class _troubles:  # noqa: N801 - reads as a clause
    """What the tree does to its reader becomes the reason to skip an entry; the host's own troubles pass through."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, OSError) and error.errno not in _HOSTS_OWN:
            raise Unfit(_reason(error)) from None


def _reason(error: OSError) -> str:
    if error.errno in {errno.ENOENT, errno.ESTALE}:
        return "it vanished"
    if error.errno in {errno.ELOOP, errno.ENOTDIR}:
        return "it became something else while it was opened"
    return f"it cannot be read: {os.strerror(error.errno or errno.EIO)}"


def _copy_bytes(source: int, copy: int, size: int) -> str:
    """Copy as many bytes as the file held when it was opened; what is appended meanwhile is not waited for."""
    digest = hashlib.sha256()
    left = size
    while left:
        with _troubles():
            data = os.read(source, min(left, _READ_BYTES))
        if not data:
            raise Unfit("it shrank while it was read")
        digest.update(data)
        left -= len(data)
        view = memoryview(data)
        while view:
            view = view[os.write(copy, view) :]
    return digest.hexdigest()


def remove_tree(path: Path) -> None:
    """Remove a directory whatever is in it, following no link; nothing to remove is fine.

    Directories are moved up to the top one after the other and emptied there, so that neither the stack nor
    the descriptors grow with the depth of the tree. Whoever could put new files into it must be gone.
    """
    try:
        parent = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        top = _open_for_removal(path.name, parent)
    except FileNotFoundError:
        return
    finally:
        os.close(parent)
    try:
        mark = f".removing-{os.urandom(16).hex()}-"
        moved = _empty(top, top, mark, 0)
        emptied = 0
        while emptied < moved:
            name = f"{mark}{emptied}"
            directory = _open_for_removal(name, top)
            try:
                moved = _empty(directory, top, mark, moved)
            finally:
                os.close(directory)
            os.rmdir(name, dir_fd=top)
            emptied += 1
    finally:
        os.close(top)
    path.rmdir()


def _empty(directory: int, top: int, mark: str, moved: int) -> int:
    """Remove what is in a directory; its own directories become the top's, numbered on from `moved`."""
    with os.scandir(directory) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, is_directory in entries:
        if not is_directory:
            os.unlink(name, dir_fd=directory)
            continue
        # To be moved, a directory must be writable to its owner: its parent changes in it.
        os.close(_open_for_removal(name, directory))
        os.rename(name, f"{mark}{moved}", src_dir_fd=directory, dst_dir_fd=top)
        moved += 1
    return moved


def _open_for_removal(name: str, parent: int) -> int:
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            Path(f"/proc/self/fd/{handle}").chmod(0o700)
        return os.open(name, _DIRECTORY, dir_fd=parent)
    finally:
        os.close(handle)
