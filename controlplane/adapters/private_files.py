"""Files and folders for their owner alone, whatever the umask and wherever the home lies: they hold evidence and answers."""

import os
import threading
from pathlib import Path

from controlplane.adapters.unsynced import sync

_FILE = 0o600
_FOLDER = 0o700


def make_folder(path: Path) -> Path:
    """Make a folder and those above it that are missing, durably; what is there already stays as it is."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(mode=_FOLDER, exist_ok=True)
        sync(path.parent)
    return path


def make_file(path: Path) -> None:
    """Make an empty file unless it is there."""
    os.close(private_opener(str(path), os.O_WRONLY | os.O_CREAT))


def write_file(path: Path, content: bytes) -> None:
    with open(path, "wb", opener=private_opener) as opened:
        opened.write(content)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, also beside others who do the same; it is on the disk when this returns."""
    make_folder(path.parent)
    fresh = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    write_file(fresh, content)
    sync(fresh)
    fresh.replace(path)
    sync(path.parent)


def private_opener(path: str, flags: int) -> int:
    """An opener for `open`: a file that it makes is private."""
    return os.open(path, flags | os.O_CLOEXEC, _FILE)
