"""Directories of degraded sessions on the host's disk: made, watched, removed. The kernel bounds one file, we the rest."""

import contextlib
import os
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox.artifacts import remove_tree
from sandbox.errors import SandboxUnavailable

_SECONDS_BETWEEN_LOOKS = 0.2
_LONG_PATH = 3_000
_BASES = 64
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def make() -> Path:
    """Make a new private directory, and remove those of workers that are gone."""
    home = Path(tempfile.gettempdir()) / f"custody-landlock-{os.geteuid()}"
    with contextlib.suppress(FileExistsError):
        home.mkdir(mode=0o711)
        home.chmod(0o711)  # whatever the umask is: another uid passes through it to its own
    found = home.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise SandboxUnavailable(
            f"{home} is not this user's own directory: remove it, or set TMPDIR", layer="landlock"
        )
    _sweep(home)
    return Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=home))


def _sweep(home: Path) -> None:
    for left in home.iterdir():
        worker = left.name.partition("-")[0]
        if worker.isdigit() and not Path(f"/proc/{worker}").exists():
            with contextlib.suppress(OSError):
                remove_tree(left)


@dataclass(frozen=True)
class Watched:
    """A workspace with what it may hold and what to do when it holds more."""

    path: Path
    most_bytes: int
    most_entries: int
    exceeded: Callable[[str], None]

    def look(self) -> None:
        used, entries = 0, 0
        try:
            for size in _sizes(self.path):
                used, entries = used + size, entries + 1
                if used > self.most_bytes:
                    self.exceeded(f"the workspace held more than {self.most_bytes} bytes")
                    return
                if entries > self.most_entries:
                    self.exceeded(f"the workspace held more than {self.most_entries} files")
                    return
        except OSError as error:
            self.exceeded(f"the workspace cannot be looked through: {error}")


def _sizes(top: Path) -> Iterator[int]:
    """Yield the bytes on disk of every entry, at any depth, while code may change the tree; follows no link."""
    bases = [os.open(top, _DIRECTORY)]
    folders = [(bases[0], ".")]
    try:
        while folders:
            base, path = folders.pop()
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                handle = os.open(path, _DIRECTORY, dir_fd=base)
                try:
                    if len(path) > _LONG_PATH:
                        if len(bases) >= _BASES:
                            raise OSError("its directories are nested too deeply")
                        bases.append(os.dup(handle))
                        base, path = bases[-1], "."
                    for name, status in _entries(handle):
                        yield status.st_blocks * 512
                        if stat.S_ISDIR(status.st_mode):
                            folders.append((base, f"{path}/{name}"))
                finally:
                    os.close(handle)
    finally:
        for base in bases:
            os.close(base)


def _entries(directory: int) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(directory) as found:
        for entry in found:
            with contextlib.suppress(FileNotFoundError):
                yield entry.name, entry.stat(follow_symlinks=False)


class Watch:
    """One thread that looks at every workspace in turn, as long as there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watched: dict[Path, Watched] = {}
        self._thread: threading.Thread | None = None

    def add(self, watched: Watched) -> None:
        with self._lock:
            self._watched[watched.path] = watched
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, daemon=True, name="sandbox-disk")
                self._thread.start()

    def forget(self, path: Path) -> None:
        with self._lock:
            self._watched.pop(path, None)

    def _run(self) -> None:
        pause = threading.Event()
        while self._look_at_all():
            pause.wait(_SECONDS_BETWEEN_LOOKS)

    def _look_at_all(self) -> bool:
        """False when there is nothing to watch. Between two looks nothing here keeps a session alive."""
        with self._lock:
            watched = list(self._watched.values())
            if not watched:
                self._thread = None
                return False
        for one in watched:
            one.look()
        return True
