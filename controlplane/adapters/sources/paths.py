"""Paths that others chose, made safe or refused: relative, plain parts, no way up. Touches no file."""

from collections.abc import Iterable

from controlplane.errors import InvalidRequest

_MOST_BYTES = 1_000
_MOST_PART_BYTES = 255
_MOST_PARTS = 64


def safe_path(name: str) -> str | None:
    """The path of an archive's member below the folder it is put in; None when it leads elsewhere or is no path."""
    plain = name.replace("\\", "/")
    if plain.startswith("/") or (len(plain) > 1 and plain[1] == ":" and plain[0].isalpha()):
        return None
    parts = [part for part in plain.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or len(parts) > _MOST_PARTS:
        return None
    joined = "/".join(parts)
    if any(ord(char) < 32 or ord(char) == 127 for char in joined):
        return None
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return None
    return joined if max(sizes) <= _MOST_PART_BYTES and sum(sizes) <= _MOST_BYTES else None


def free_path(path: str, taken: set[str], folders: set[str]) -> bool:
    """Whether a file can stand at a path beside those that are there; if so, its folders are noted."""
    above = ["/".join(path.split("/")[:depth]) for depth in range(1, path.count("/") + 1)]
    if path in taken or path in folders or any(folder in taken for folder in above):
        return False
    taken.add(path)
    folders.update(above)
    return True


def check_tree(paths: Iterable[str]) -> None:
    """Refuse paths that do not make a folder: unsafe ones, and files where others need a folder."""
    taken: set[str] = set()
    folders: set[str] = set()
    for path in paths:
        if safe_path(path) != path:
            raise InvalidRequest(f"the path {path!r} cannot be used: name one below the evidence, without ..")
        if not free_path(path, taken, folders):
            raise InvalidRequest(f"the path {path!r} is used twice, or is also a folder: rename one")
