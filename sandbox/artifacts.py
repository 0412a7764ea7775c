"""Files that code left in its workspace, copied out without trusting a name, a link or a size in it."""

import hashlib
import os
import stat
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.escaping import escape_name
from sandbox.globs import Globs
from sandbox.policy import ArtifactLimits
from sandbox.walking import DIRECTORY, Found, Passed, Tally, Unfit, Walk, troubles

_READ_BYTES = 1 << 20
_SKIPPED_NAMED = 100
_SHOWN_CHARACTERS = 300
_COPY = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


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
class Collection:
    """One collection into an open directory: counts, numbers and copies; `copy` raises Unfit for what is not taken."""

    into: Path
    target: int
    limits: ArtifactLimits
    artifacts: list[Artifact] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    skipped_total: int = 0
    numbers: int = 0

    def __post_init__(self) -> None:
        self.globs = Globs(self.limits.only)
        self._tally = Tally(self.limits)

    def take(self, directory_fd: int) -> Collected:
        for step in Walk(self._tally).steps(directory_fd):
            match step:
                case Passed(path=path, reason=reason):
                    self.skip(path, reason)
                case Found(fd=fd, path=path):
                    try:
                        self.copy(fd, path)
                    except Unfit as unfit:
                        self.skip(path, str(unfit))
        return self.collected()

    def collected(self) -> Collected:
        return Collected(
            artifacts=tuple(self.artifacts), skipped=tuple(self.skipped), skipped_total=self.skipped_total
        )

    def copy(self, source: int, path: bytes) -> None:
        """Copy an open file that the guest calls `path`, if it is one plain file within the limits."""
        status = os.fstat(source)
        self._tally.check(status, path)
        # Counted before it is read: code may spoil every copy at its last byte.
        self._tally.count(status.st_size)
        name, copy = self._new_copy()
        try:
            sha256 = _copy_bytes(source, copy, status.st_size)
        except BaseException:
            os.unlink(name, dir_fd=self.target)
            raise
        finally:
            os.close(copy)
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


def _copy_bytes(source: int, copy: int, size: int) -> str:
    """Copy as many bytes as the file held when it was opened; what is appended meanwhile is not waited for."""
    digest = hashlib.sha256()
    left = size
    while left:
        with troubles():
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
        return os.open(name, DIRECTORY, dir_fd=parent)
    finally:
        os.close(handle)
