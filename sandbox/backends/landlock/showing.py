"""Evidence below folders that let only root in, for a session that has another uid: linked into a folder that it may enter.

Names are added, rights are not: a file that its owner closed to others stays closed, and nothing becomes writable.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from sandbox.backends.landlock import workspaces
from sandbox.backends.namespaces.plan import Bind

_FOLDER = 0o755
#: Across file systems files are copied, as long as they are no more than this together.
_MOST_COPIED = 1 << 30


class Shown:
    """The folder of one session; made when the first piece needs it."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self._copied = 0

    def bind(self, bind: Bind) -> Bind:
        """The bind itself, or one to a second name of what it shows."""
        if os.geteuid() != 0 or not _is_hidden(bind.source):
            return bind
        target = self._own_folder() / str(len(os.listdir(self._own_folder())))  # noqa: PTH208 - names alone
        for source, place in _steps(Path(bind.source), target):
            if stat.S_ISDIR(source.lstat().st_mode):
                place.mkdir()
                place.chmod(source.lstat().st_mode & _FOLDER)
            elif not self._link(source, place):
                return bind  # too much to copy: whoever opens the session is told that it cannot be read
        return Bind(source=str(target), target=bind.target, is_evidence=bind.is_evidence)

    def _own_folder(self) -> Path:
        if self.folder is None:
            self.folder = workspaces.make()
            self.folder.chmod(_FOLDER)
        return self.folder

    def _link(self, source: Path, place: Path) -> bool:
        try:
            os.link(source, place, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EMLINK, errno.EPERM):
                raise
            self._copied += source.stat().st_size
            if self._copied > _MOST_COPIED:
                return False
            shutil.copyfile(source, place, follow_symlinks=False)
            shutil.copystat(source, place, follow_symlinks=False)
        return True


def _is_hidden(source: str) -> bool:
    """Whether only what lies above keeps others out: they may read the thing itself."""
    mode = Path(source).stat().st_mode
    needed = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
    if mode & needed != needed:
        return False
    return any(not parent.stat().st_mode & stat.S_IXOTH for parent in Path(source).parents)


def _steps(source: Path, place: Path) -> Iterator[tuple[Path, Path]]:
    """Folders before what is in them; regular files only, and no link is followed."""
    waiting = [(source, place)]
    while waiting:
        source, place = waiting.pop()
        mode = source.lstat().st_mode
        if stat.S_ISDIR(mode):
            yield source, place
            waiting.extend((item, place / item.name) for item in source.iterdir())
        elif stat.S_ISREG(mode):
            yield source, place
