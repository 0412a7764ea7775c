"""Compressed streams: gzip, bzip2, xz and Zstandard, by name and by first bytes. Gives blocks, keeps nothing."""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Self

from controlplane.errors import InvalidRequest

_BLOCK = 1 << 18
#: A stream may ask for no more memory than this to be unpacked.
_WINDOW = 256 << 20

_MAGIC = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ\x00", ".zst": b"\x28\xb5\x2f\xfd"}
_SHORT = {".tgz": ".tar.gz", ".tbz2": ".tar.bz2", ".tbz": ".tar.bz2", ".txz": ".tar.xz", ".tzst": ".tar.zst"}


def whole_suffix(name: str) -> str:
    """The name in lower case with short forms written out: `A.TGZ` is `a.tar.gz`."""
    lower = name.lower()
    for short, whole in _SHORT.items():
        if lower.endswith(short):
            return lower.removesuffix(short) + whole
    return lower


def packing_of(path: Path, name: str) -> str | None:
    """`.gz`, `.bz2`, `.xz` or `.zst` when both the name and the first bytes say so."""
    lower = whole_suffix(name)
    for suffix, magic in _MAGIC.items():
        if lower.endswith(suffix):
            with path.open("rb") as opened:
                return suffix if opened.read(len(magic)) == magic else None
    return None


def unpacked_name(name: str, packing: str) -> str:
    """The name without its packing: `a.log` of `a.log.gz`."""
    stem = whole_suffix(name).removesuffix(packing)
    return name[: len(stem)] if name.lower().startswith(stem) and stem else stem or "unpacked"


def unpacked_blocks(path: Path, packing: str) -> Iterator[bytes]:
    """The unpacked bytes of a file. Raises InvalidRequest where it is broken."""
    try:
        with path.open("rb") as opened, _OPENERS[packing](opened) as stream:
            while block := stream.read(_BLOCK):
                yield block
    except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
        raise InvalidRequest(f"{path.name!r} cannot be unpacked as {packing}: {error}") from error


def _open_xz(opened: BinaryIO) -> Any:
    return _Bounded(opened, lambda: lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_WINDOW))


def _open_zst(opened: BinaryIO) -> Any:
    import zstandard  # noqa: PLC0415 - only such evidence needs it

    try:
        promised = zstandard.frame_content_size(opened.read(32))
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from error
    opened.seek(0)
    unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
    return _Zstandard(unpacker.stream_reader(opened, read_across_frames=True), promised=promised)


class _Zstandard:
    """A stream whose errors are those of other streams; one that ends before its promised size is broken."""

    def __init__(self, stream: Any, *, promised: int) -> None:
        self._stream = stream
        self._missing = promised

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stream.close()

    def read(self, size: int) -> bytes:
        import zstandard  # noqa: PLC0415 - as above

        try:
            block = bytes(self._stream.read(size))
        except zstandard.ZstdError as error:
            raise ValueError(str(error)) from error
        self._missing -= len(block)
        if not block and self._missing > 0:
            raise EOFError("it ends too early")
        return block


class _Bounded:
    """An xz file of any number of streams, unpacked with bounded memory."""

    def __init__(self, opened: BinaryIO, make: Callable[[], lzma.LZMADecompressor]) -> None:
        self._opened = opened
        self._make = make
        self._unpacker = make()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def read(self, size: int) -> bytes:
        while True:
            if self._unpacker.eof:
                rest = self._unpacker.unused_data.lstrip(b"\0") or self._opened.read(_BLOCK).lstrip(b"\0")
                if not rest:
                    return b""
                self._unpacker = self._make()
                found = self._unpacker.decompress(rest, size)
            elif self._unpacker.needs_input:
                block = self._opened.read(_BLOCK)
                if not block:
                    raise EOFError("it ends too early")
                found = self._unpacker.decompress(block, size)
            else:
                found = self._unpacker.decompress(b"", size)
            if found:
                return found


_OPENERS: dict[str, Callable[[BinaryIO], Any]] = {
    ".gz": lambda opened: gzip.GzipFile(fileobj=opened),
    ".bz2": bz2.BZ2File,
    ".xz": _open_xz,
    ".zst": _open_zst,
}
