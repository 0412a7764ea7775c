"""Files for strict code: its workspace, its evidence, its /tmp. The system decides; this only says it earlier."""

import builtins
import functools
import importlib
import os
import pathlib
import types
from collections.abc import Callable, Iterator
from typing import Any

from sandbox.guest.language.policy import Places

_EVIDENCE = "/evidence/"
_READ_ONLY_MODES = frozenset("rbt")
_PATH_METHODS = [
    "read_text",
    "read_bytes",
    "write_text",
    "write_bytes",
    "mkdir",
    "rmdir",
    "unlink",
    "touch",
    "chmod",
    "stat",
    "lstat",
    "owner",
    "group",
    "readlink",
]
_PATH_QUESTIONS = [
    "exists",
    "is_file",
    "is_dir",
    "is_symlink",
    "is_mount",
    "is_fifo",
    "is_socket",
    "is_block_device",
    "is_char_device",
]


def _text(path: Any) -> str:
    """Return a path, mode or pattern as the plain str it is: a subclass may answer differently each time it is asked."""
    raw = os.fspath(path)
    if isinstance(raw, bytes):
        return bytes.decode(raw, "utf-8", "surrogateescape")
    return str.__str__(raw)


class Files:
    """Opens what lies below the session's own folders, however the path is written."""

    def __init__(self, places: Places) -> None:
        self._elsewhere = {} if isinstance(places.evidence, str) else dict(places.evidence)
        evidence = (places.evidence,) if isinstance(places.evidence, str) else places.evidence.values()
        self._writable = tuple(os.path.realpath(place) for place in (places.workspace, places.temporary))
        self._readable = (*self._writable, *(os.path.realpath(place) for place in evidence))
        self._workspace = places.workspace

    def checked(self, path: Any, *, writing: bool = False) -> str:
        """Return the path as a plain str, or raise PermissionError for one that leads elsewhere."""
        text = self._where(_text(path)) if not isinstance(path, int) else ""
        real = os.path.realpath(os.path.join(self._workspace, text))  # noqa: PTH118
        roots = self._writable if writing else self._readable
        if text and any(real == root or real.startswith(f"{root}/") for root in roots):
            return text
        what = "write below `workspace`" if writing else "read `evidence` and what is below `workspace`"
        raise PermissionError(1, f"strict language policy: this path is not the session's: {what}", text)

    def _where(self, path: str) -> str:
        """Return where a piece of evidence lies, when it is not below one folder of its own."""
        if self._elsewhere and path.startswith(_EVIDENCE):
            name = path.removeprefix(_EVIDENCE)
            for target, source in self._elsewhere.items():
                if name == target or name.startswith(f"{target}/"):
                    return source + name.removeprefix(target)
        return path

    def is_inside(self, path: Any) -> bool:
        try:
            self.checked(path)
        except (PermissionError, TypeError, ValueError):
            return False
        return True

    def open(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        """Open a file of the session."""
        if "opener" in kwargs or len(args) > 5:
            raise PermissionError(1, "strict language policy: open() takes no opener")
        mode = _text(mode)
        path = self.checked(file, writing=not _READ_ONLY_MODES.issuperset(mode))
        return builtins.open(path, mode, *args, **kwargs)  # noqa: PTH123 - the caller closes it

    def gzip_open(self, file: Any, mode: str = "rb", *args: Any, **kwargs: Any) -> Any:
        mode = _text(mode)
        if isinstance(file, str | bytes | os.PathLike):
            file = self.checked(file, writing=not _READ_ONLY_MODES.issuperset(mode))
        return importlib.import_module("gzip").open(file, mode, *args, **kwargs)

    def connect_sqlite(self, database: Any = ":memory:", timeout: float = 5.0) -> Any:
        """Open one database: the files that statements name are not looked at, so they are not opened."""
        sqlite3 = importlib.import_module("sqlite3")
        path = _text(database)
        if path != ":memory:":
            path = self.checked(path, writing=True)
        connection = sqlite3.connect(path, timeout=timeout)

        def authorize(action: int, name: str | None, *_more: object) -> int:
            attaches = action == sqlite3.SQLITE_ATTACH and name not in {"", ":memory:"}
            return int(sqlite3.SQLITE_DENY if attaches else sqlite3.SQLITE_OK)

        connection.set_authorizer(authorize)
        return connection

    def glob(self, pattern: Any, *, root_dir: Any = None, recursive: bool = False) -> list[str]:
        root = "." if root_dir is None else self.checked(root_dir)
        found = importlib.import_module("glob").glob(_text(pattern), root_dir=root, recursive=recursive)
        return [path for path in found if self.is_inside(os.path.join(root, path))]  # noqa: PTH118

    def walk(self, top: Any, topdown: bool = True) -> Iterator[Any]:
        """`os.walk`: the caller may change the list of folders to go on with, so each is looked at again."""
        start = self.checked(top)
        entries = sorted(os.scandir(start), key=lambda entry: entry.name)
        folders = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        files = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
        if topdown:
            yield start, folders, files
        for folder in list(folders):
            yield from self.walk(os.path.join(start, _text(folder)), topdown)  # noqa: PTH118
        if not topdown:
            yield start, folders, files

    def xml_names(self) -> dict[str, Any]:
        etree = importlib.import_module("xml.etree.ElementTree")
        tree_class = types.new_class("ElementTree", (etree.ElementTree,), exec_body=self._xml_methods)

        def parse(source: Any, parser: Any = None) -> Any:
            tree = tree_class()
            tree.parse(source, parser)
            return tree

        def canonicalize(xml_data: Any = None, *, from_file: Any = None, **options: Any) -> Any:
            source = None if from_file is None else self._source(from_file)
            return etree.canonicalize(xml_data, from_file=source, **options)

        return {"parse": parse, "canonicalize": canonicalize}

    def _xml_methods(self, body: dict[str, Any]) -> None:
        etree = importlib.import_module("xml.etree.ElementTree")

        def parse(tree: Any, source: Any, parser: Any = None) -> Any:
            return etree.ElementTree.parse(tree, self._source(source), parser)

        def write(tree: Any, target: Any, *args: Any, **kwargs: Any) -> None:
            if not hasattr(target, "write"):
                target = self.checked(target, writing=True)
            etree.ElementTree.write(tree, target, *args, **kwargs)

        body.update(__module__="xml.etree.ElementTree", parse=parse, write=write)

    def _source(self, source: Any) -> Any:
        return source if hasattr(source, "read") else self.checked(source)

    def replacing(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return os.rename and its like with both ends checked."""

        def moved(source: Any, target: Any) -> Any:
            return function(self.checked(source, writing=True), self.checked(target, writing=True))

        return moved

    def on_path(self, function: Callable[..., Any], *, writing: bool = False) -> Callable[..., Any]:
        """Return a function of os or os.path whose first argument is checked."""

        @functools.wraps(function)
        def guarded(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
            if "dir_fd" in kwargs:
                raise PermissionError(1, "strict language policy: a path is not taken from a descriptor")
            return function(self.checked(path, writing=writing), *args, **kwargs)

        return guarded

    def asked(self, function: Callable[[str], bool]) -> Callable[[Any], bool]:
        """Return a question about a path; nothing exists outside."""
        return lambda path: self.is_inside(path) and function(self.checked(path))

    def os_names(self) -> dict[str, Any]:
        kept = [
            "sep",
            "linesep",
            "extsep",
            "pathsep",
            "curdir",
            "pardir",
            "devnull",
            "fspath",
            "getcwd",
            "getpid",
            "cpu_count",
            "strerror",
            "urandom",
        ]
        writing = ["mkdir", "makedirs", "remove", "unlink", "rmdir", "removedirs"]
        return {
            **{name: getattr(os, name) for name in kept},
            **{name: self.on_path(getattr(os, name), writing=True) for name in writing},
            **{name: self.on_path(getattr(os, name)) for name in ("listdir", "scandir", "stat", "lstat")},
            **{name: self.replacing(getattr(os, name)) for name in ("rename", "replace")},
            "environ": dict(os.environ),
            "getenv": dict(os.environ).get,
            "name": os.name,
            "walk": self.walk,
            "error": OSError,
            "PathLike": os.PathLike,
        }

    def path_names(self) -> dict[str, Any]:
        kept = [
            "join",
            "basename",
            "dirname",
            "splitext",
            "split",
            "isabs",
            "normpath",
            "normcase",
            "commonpath",
            "commonprefix",
            "abspath",
            "relpath",
            "splitdrive",
            "sep",
            "extsep",
            "pathsep",
            "curdir",
            "pardir",
            "expanduser",
        ]
        return {
            **{name: getattr(os.path, name) for name in kept},
            **{name: self.asked(getattr(os.path, name)) for name in ("exists", "isfile", "isdir", "islink")},
            **{
                name: self.on_path(getattr(os.path, name))
                for name in ("getsize", "getmtime", "getctime", "realpath")
            },
        }

    @functools.cached_property
    def path_class(self) -> type[pathlib.PosixPath]:
        """`pathlib.Path` for strict code: every method that touches the disk looks at the path first, once."""
        namespace: dict[str, Any] = {
            "__module__": "pathlib",
            "open": _opening(self),
            **{name: _touching(self, name, writing=name in _WRITES) for name in _PATH_METHODS},
            **{name: _asking(self, name) for name in _PATH_QUESTIONS},
            **{name: _listing(self, name) for name in ("iterdir", "glob", "rglob", "resolve", "absolute")},
            **{name: _moving(self, name) for name in ("rename", "replace")},
            **{
                name: _refusing(name)
                for name in ("symlink_to", "hardlink_to", "link_to", "lchmod", "samefile", "walk")
            },
        }
        return types.new_class(
            "PosixPath", (pathlib.PosixPath,), exec_body=lambda body: body.update(namespace)
        )


_WRITES = frozenset({"write_text", "write_bytes", "mkdir", "rmdir", "unlink", "touch", "chmod"})


def _plain(files: Files, path: Any, *, writing: bool) -> pathlib.PosixPath:
    """Return a path of the real class, made of what was checked: a subclass may answer differently the next time."""
    return pathlib.PosixPath(files.checked(path, writing=writing))


def _touching(files: Files, name: str, *, writing: bool) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: getattr(_plain(files, self, writing=writing), name)(*args, **kwargs)


def _opening(files: Files) -> Callable[..., Any]:
    return lambda self, mode="r", *args, **kwargs: files.open(self, mode, *args, **kwargs)


def _asking(files: Files, name: str) -> Callable[..., bool]:
    return lambda self: files.is_inside(self) and bool(getattr(_plain(files, self, writing=False), name)())


def _listing(files: Files, name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = getattr(_plain(files, self, writing=False), name)(*args, **kwargs)
        if isinstance(found, pathlib.PosixPath):
            return files.path_class(found)
        return (files.path_class(path) for path in found if files.is_inside(path))

    return method


def _moving(files: Files, name: str) -> Callable[..., Any]:
    def method(self: Any, target: Any) -> Any:
        source = _plain(files, self, writing=True)
        return files.path_class(getattr(source, name)(files.checked(target, writing=True)))

    return method


def _refusing(name: str) -> Callable[..., Any]:
    def method(self: Any, *_args: Any, **_kwargs: Any) -> Any:
        raise PermissionError(1, f"strict language policy: Path.{name} is not available", _text(self))

    return method
