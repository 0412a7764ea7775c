"""Zip and tar archives, member by member, into the store. No link, device or path out of it ever reaches the disk."""

import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from controlplane.adapters.content_store import Blob, ContentStore, blocks_of
from controlplane.adapters.sources.bounds import Tally
from controlplane.adapters.sources.packed import packing_of, unpacked_blocks, unpacked_name, whole_suffix
from controlplane.adapters.sources.paths import free_path, safe_path
from controlplane.errors import InvalidRequest

_DIRECTORY_BYTES = 64 << 20
_HEADER_BYTES = 1 << 20
_ENCRYPTED = 0x1
#: What the libraries raise for archives that are not what they say.
_BROKEN = (
    *(zipfile.BadZipFile, tarfile.TarError, zlib.error, struct.error),
    *(EOFError, OSError, ValueError, LookupError),
)


def is_archive(path: Path, name: str) -> bool:
    """Whether the name says archive and the first bytes do not deny it."""
    lower = whole_suffix(name)
    if lower.endswith(".zip"):
        with path.open("rb") as opened:
            return opened.read(2) == b"PK"
    if lower.endswith(".tar"):
        return True
    return any(lower.endswith(f".tar{packing}") for packing in (".gz", ".bz2", ".xz", ".zst")) and (
        packing_of(path, name) is not None
    )


class Unpacker:
    """One archive, and those within it, as files of the store by their paths."""

    def __init__(self, store: ContentStore, tally: Tally) -> None:
        self._store = store
        self._tally = tally
        self._taken: set[str] = set()
        self._folders: set[str] = set()
        self.files: dict[str, Blob] = {}

    def unpack(self, path: Path, name: str, *, below: str = "", depth: int = 1) -> None:
        """Keep every regular member; what is left out is noted. Raises for what is broken or goes beyond the bounds."""
        members = _zip_members if whole_suffix(name).endswith(".zip") else _tar_members
        try:
            for member, blocks in members(path, name, self._tally):
                self._tally.entry()
                self._member(member, blocks, below=below, depth=depth)
        except _BROKEN as error:
            raise InvalidRequest(f"the archive {name!r} cannot be read: {error}") from error
        except (
            NotImplementedError,
            RuntimeError,
        ) as error:  # a packing or an encryption that zipfile does not know
            raise InvalidRequest(f"the archive {name!r} cannot be unpacked here: {error}") from error

    def _member(self, member: str, blocks: Iterable[bytes], *, below: str, depth: int) -> None:
        path = safe_path(below + member)
        if path is None:
            self._tally.leave_out(below + member, "its path leads out of the archive or is none")
            return
        blob = self._store.keep(self._tally.count(blocks))
        if is_archive(blob.path, path) and depth < self._tally.bounds.nesting:
            try:
                self.unpack(blob.path, path.rpartition("/")[2], below=f"{path}/", depth=depth + 1)
            except InvalidRequest as error:
                if error.__cause__ is None:
                    raise  # beyond the bounds
                self._tally.leave_out(path, f"it is kept packed, {error.__cause__}")
                self._keep(path, blob)
            return
        packing = None if is_archive(blob.path, path) else packing_of(blob.path, path)
        if packing is not None:
            path, blob = self._unpacked(path, blob, packing)
        self._keep(path, blob)

    def _unpacked(self, path: str, blob: Blob, packing: str) -> tuple[str, Blob]:
        plain = unpacked_name(path, packing)
        if plain in self._taken:
            return path, blob
        try:
            return plain, self._store.keep(self._tally.count(unpacked_blocks(blob.path, packing)))
        except InvalidRequest as error:
            if error.__cause__ is None:
                raise
            self._tally.leave_out(path, f"it is kept packed, {error.__cause__}")
            return path, blob

    def _keep(self, path: str, blob: Blob) -> None:
        if free_path(path, self._taken, self._folders):
            self.files[path] = blob
        else:
            self._tally.leave_out(path, "another member has its place")


def _zip_members(path: Path, name: str, tally: Tally) -> Iterator[tuple[str, Iterator[bytes]]]:
    _check_directory(path, name)
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            kind = (info.external_attr >> 28) & 0xF
            if not info.filename:
                tally.leave_out("a member without a name", "it has no path")
                continue
            if info.is_dir():
                continue
            if kind not in (0, 8):
                tally.leave_out(info.filename, "it is a link or a device")
            elif info.flag_bits & _ENCRYPTED:
                tally.leave_out(info.filename, "it is encrypted")
            else:
                with archive.open(info) as member:
                    yield info.filename, blocks_of(member)


def _check_directory(path: Path, name: str) -> None:
    """Refuse a zip file whose list of members alone would fill the memory."""
    with path.open("rb") as opened:
        opened.seek(0, 2)
        opened.seek(-min(opened.tell(), 66_000), 1)
        tail = opened.read()
    end = tail.rfind(b"PK\x05\x06")
    whole = tail.rfind(b"PK\x06\x06")
    sizes = []
    if end >= 0 and len(tail) >= end + 16:
        sizes.append(struct.unpack_from("<I", tail, end + 12)[0])
    if whole >= 0 and len(tail) >= whole + 48:
        sizes = [struct.unpack_from("<Q", tail, whole + 40)[0]]
    if any(size > _DIRECTORY_BYTES for size in sizes):
        raise InvalidRequest(f"the archive {name!r} lists more members than can be read: it is refused")


class _Header(tarfile.TarInfo):
    """A tar header whose own data is small: the library would read it whole."""

    def _proc_member(self, tar: tarfile.TarFile) -> Any:
        extends = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)
        if self.type in (*extends, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK) and (
            self.size > _HEADER_BYTES
        ):
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        return super()._proc_member(tar)  # type: ignore[misc]


def _tar_members(path: Path, name: str, tally: Tally) -> Iterator[tuple[str, Iterator[bytes]]]:
    packing = packing_of(path, name)
    with path.open("rb") as opened:
        stream: Any = opened if packing is None else _Stream(unpacked_blocks(path, packing))
        with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive:
            for info in archive:
                # The library remembers every header it has seen, and these are hostile ones.
                archive.members = []  # type: ignore[attr-defined]
                if info.isdir():
                    continue
                member = archive.extractfile(info) if info.isreg() and not info.issparse() else None
                if member is None:
                    tally.leave_out(info.name, "it is a link, a device or sparse")
                else:
                    yield info.name, blocks_of(member)


class _Stream:
    """Blocks as a file that can be read from."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._rest = b""

    def read(self, size: int) -> bytes:
        parts, missing = [self._rest[:size]], size - len(self._rest)
        self._rest = self._rest[size:]
        while missing > 0 and (block := next(self._blocks, b"")):
            parts.append(block[:missing])
            self._rest = block[missing:]
            missing -= len(block)
        return b"".join(parts)
