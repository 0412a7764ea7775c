"""The container's image: the machine's own interpreter, its standard library, the guest. Comes from no registry.

Named by the digest of its content, so it is made once and a changed guest gets a new one. Knows no engine.
"""

import hashlib
import importlib.util
import io
import marshal
import os
import subprocess
import sys
import sysconfig
import tarfile
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sandbox.backends.docker.inside.confinement import STRICT
from sandbox.backends.docker.inside.start import PLACES
from sandbox.errors import SandboxUnavailable
from sandbox.strictness import package_directory

REPOSITORY = "custody-guest"
INTERPRETER = "/usr/bin/python3"
START = f"{PLACES[1]}/backends/docker/inside/start.py"
_GUEST, _CONFINEMENT = PLACES
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
_PACKAGE = Path(__file__).parents[2]
#: Beside the guest, only what the relay itself imports.
_INSIDE = (
    "backends/__init__.py",
    "backends/docker/__init__.py",
    "backends/docker/inside/__init__.py",
    "backends/docker/inside/confinement.py",
    "backends/docker/inside/records.py",
    "backends/docker/inside/relay.py",
    "backends/docker/inside/start.py",
    "backends/docker/inside/walk.py",
    "backends/namespaces/__init__.py",
    "backends/namespaces/kernel.py",
    "backends/namespaces/landlock.py",
    "globs.py",
    "walking.py",
)
_LEFT_OUT = frozenset(
    {
        "test",
        "tests",
        "idlelib",
        "turtledemo",
        "tkinter",
        "lib2to3",
        "ensurepip",
        "site-packages",
        "dist-packages",
    }
)
_LEFT_OUT_FILES = ("_tkinter", "_test", "_xxtest", "xxlimited", "_ctypes_test")
_LIST_SECONDS = 60.0


@dataclass(frozen=True)
class _Entry:
    name: str
    source: Path | None = None
    content: bytes = b""

    def read(self) -> bytes:
        return self.content if self.source is None else self.source.read_bytes()


class Image:
    """What goes into the image, listed once; `name` needs every byte of it, so keep the object."""

    def __init__(self) -> None:
        self._entries = sorted(_entries(), key=lambda entry: entry.name)
        digest = hashlib.sha256()
        for entry in self._entries:
            content = entry.read()
            digest.update(f"{entry.name}\0{len(content)}\0{_mtime(entry)}\0".encode())
            digest.update(content)
        self.tag = digest.hexdigest()[:32]
        self.name = f"{REPOSITORY}:{self.tag}"

    def write(self, out: IO[bytes]) -> None:
        """Write the root file system as a tar."""
        made: set[str] = set()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for entry in self._entries:
                for parent in reversed(Path(entry.name).parents):
                    if str(parent) not in {".", *made}:
                        made.add(str(parent))
                        tar.addfile(_directory(str(parent)))
                content = entry.read()
                member = tarfile.TarInfo(entry.name)
                member.size, member.mtime = len(content), _mtime(entry)
                member.mode = 0o755 if entry.name.startswith("usr/bin/") or ".so" in entry.name else 0o644
                tar.addfile(member, io.BytesIO(content))
            for name in ("dev", "etc", "evidence", "proc", "sys"):
                if name not in made:
                    tar.addfile(_directory(name))


def _directory(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, 0o755
    return member


def _mtime(entry: _Entry) -> int:
    """The library's compiled files are valid only beside sources of the right age."""
    return 0 if entry.source is None else int(entry.source.stat().st_mtime)


def _entries() -> Iterator[_Entry]:
    executable = Path(sys.base_prefix, "bin", _VERSION).resolve()
    libraries = [executable]
    yield _Entry(INTERPRETER.lstrip("/"), executable)
    for path, relative in _library_files(Path(sysconfig.get_path("stdlib", vars={"base": sys.base_prefix}))):
        if path.suffix == ".so":
            libraries.append(path)
        yield _Entry(f"usr/lib/{_VERSION}/{relative}", path)
    for name, path in sorted(_shared_objects(libraries).items()):
        yield _Entry(f"lib64/{name}" if name.startswith("ld-linux") else f"usr/lib/{name}", path)
    zones = Path("/usr/share/zoneinfo")
    for path, relative in _files(zones, left_out=frozenset({"right", "posix"})) if zones.is_dir() else ():
        yield _Entry(f"usr/share/zoneinfo/{relative}", path.resolve())
    for path, relative in _files(_PACKAGE / "guest", left_out=frozenset({"__pycache__"})):
        yield from _compiled(f"{_GUEST}/guest/{relative}".lstrip("/"), path)
    for relative in _INSIDE:
        yield from _compiled(f"{_CONFINEMENT}/{relative}".lstrip("/"), _PACKAGE / relative)
    yield from _restricted_python()


def _library_files(stdlib: Path) -> Iterator[tuple[Path, str]]:
    for path, relative in _files(stdlib, left_out=_LEFT_OUT):
        unwanted = path.name.startswith(_LEFT_OUT_FILES) or path.name.endswith(
            (".a", ".opt-1.pyc", ".opt-2.pyc")
        )
        if not unwanted and not relative.startswith("config-"):
            yield path, relative


def _files(top: Path, *, left_out: frozenset[str]) -> Iterator[tuple[Path, str]]:
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(set(folders) - left_out)
        for name in sorted(files):
            path = Path(folder, name)
            if path.is_file():
                yield path, str(path.relative_to(top))


def _restricted_python() -> Iterator[_Entry]:
    """What the strict language needs, in a directory of its own: it is put on the path for that language only."""
    try:
        top = Path(package_directory())
    except SandboxUnavailable:
        return  # told by the first session that asks for it
    for path, relative in _files(top, left_out=frozenset({"__pycache__", "tests"})):
        yield from _compiled(f"{STRICT}/{top.name}/{relative}".lstrip("/"), path)


def _compiled(name: str, source: Path) -> Iterator[_Entry]:
    """Yield a file, and a module's code as well: the root is read-only, so nothing could be compiled later."""
    content = source.read_bytes()
    yield _Entry(name, content=content)
    if source.suffix == ".py":
        code = compile(content, f"/{name}", "exec", dont_inherit=True)
        cached = importlib.util.cache_from_source(f"/{name}").lstrip("/")
        yield _Entry(cached, content=_unchecked(code))


def _unchecked(code: types.CodeType) -> bytes:
    """Return a compiled module that the interpreter takes without asking how old its source is (PEP 552)."""
    return importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + marshal.dumps(code)


def _shared_objects(files: list[Path]) -> dict[str, Path]:
    listing = subprocess.run(
        ["ldd", *map(str, files)],  # noqa: S607 - where it lies differs
        capture_output=True,
        text=True,
        timeout=_LIST_SECONDS,
        check=False,
    )
    found: dict[str, Path] = {}
    for line in listing.stdout.splitlines():
        path = line.split("=>")[-1].strip().split(" (")[0]
        if line.startswith("\t") and path.startswith("/"):
            found[Path(path).name] = Path(path).resolve()
    return found
