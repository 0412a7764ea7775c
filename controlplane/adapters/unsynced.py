"""What was written and could still be lost with the power: made durable in one go, before anything refers to it."""

import ctypes
import os
import threading
from pathlib import Path

#: More than these are made durable by one call for the whole file system, which then costs less than one call for each.
_ONE_BY_ONE = 256


def sync(path: Path | str) -> None:
    """Return when a file's bytes, or a folder's names, are on the disk. Raises OSError when they cannot be."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_file_system(path: Path | str) -> bool:
    """Everything that was written to the file system of a path; False where the machine cannot do that."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is None:
        return False
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if call(opened) != 0:
            raise OSError(ctypes.get_errno(), "the disk did not take what was written", str(path))
    finally:
        os.close(opened)
    return True


class Unsynced:
    """Files and folders of one file system that are owed to the disk. May be used by several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._owed: dict[Path, None] = {}
        self._lock = threading.Lock()

    def add(self, *paths: Path) -> None:
        with self._lock:
            self._owed.update(dict.fromkeys(paths))

    def sync(self) -> None:
        """Return when nothing is owed any more: files first, then the folders that name them. What failed stays owed."""
        with self._lock:
            owed = list(self._owed)
        if not (len(owed) > _ONE_BY_ONE and sync_file_system(self._folder)):
            for path in sorted(owed, key=lambda path: (path.is_dir(), -len(path.parts))):
                sync(path)
        with self._lock:
            for path in owed:
                self._owed.pop(path, None)
