"""Folders in which a worker keeps files by content, before its trace refers to them."""

import os
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Return when the names in a folder, and its own name, are on the disk. Raises OSError when they cannot be."""
    for place in (folder, folder.parent):
        opened = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
