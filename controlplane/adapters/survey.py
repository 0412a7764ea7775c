"""What lies at a path: a file, or every regular file below a folder, without reading a byte."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from controlplane.errors import InvalidRequest

MAX_FILES = 200_000

#: Relative path, size, time of change, mode.
Entry = tuple[str, int, int, int]
#: Where it really lies, `file` or `tree`, and what is in it.
Survey = tuple[Path, str, list[Entry]]


def survey(path: Path) -> Survey:
    """Where evidence really lies, whether it is a file or a tree, and what is in it, as `stat` tells."""
    try:
        place = path.resolve(strict=True)
        str(place).encode()
        found = place.stat()
        if stat.S_ISDIR(found.st_mode):
            return place, "tree", sorted(_walk(place))
    except OSError as error:
        raise InvalidRequest(f"evidence {str(path)!r} cannot be read: {error.strerror or error}") from error
    except UnicodeEncodeError:
        raise InvalidRequest(f"evidence {str(path)!r} has a name that is not text: rename it") from None
    if not stat.S_ISREG(found.st_mode):
        raise InvalidRequest(f"evidence {str(path)!r} is neither a file nor a folder")
    if not os.access(place, os.R_OK):
        raise InvalidRequest(f"evidence {str(path)!r} cannot be read: Permission denied")
    return place, "file", [("", found.st_size, found.st_mtime_ns, found.st_mode)]


def _walk(root: Path) -> Iterator[Entry]:
    """Every regular file below a folder; links and special files are not evidence."""
    count = 0
    folders = [("", str(root))]
    while folders:
        below, folder = folders.pop()
        with os.scandir(folder) as items:
            for item in items:
                found = item.stat(follow_symlinks=False)
                name = f"{below}{item.name}"
                if stat.S_ISDIR(found.st_mode):
                    folders.append((f"{name}/", item.path))
                elif stat.S_ISREG(found.st_mode):
                    count += 1
                    yield name, found.st_size, found.st_mtime_ns, found.st_mode
        if count > MAX_FILES:
            raise InvalidRequest(
                f"evidence {str(root)!r} holds more than {MAX_FILES:,} files: name the folders that matter"
            )
