"""The bytes of one file: mapped or read, cut at lines and characters, its newlines counted once. Knows no names."""

import mmap
import os
from array import array
from bisect import bisect_right
from functools import lru_cache
from threading import Lock

Data = bytes | mmap.mmap

_READ_WHOLE = 1 << 20
_BLOCK = 1 << 14
_PIECE = 1 << 20
#: Descriptors are scarce in the sandbox, and each mapping holds one until it is let go.
_KEPT_OPEN = 16


@lru_cache(maxsize=_KEPT_OPEN)
def content(path: str) -> Data:
    """The bytes of a small file, the mapping of a large one; a link is refused."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if os.fstat(descriptor).st_size > _READ_WHOLE:
            return mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
        return b"".join(iter(lambda: os.read(descriptor, _READ_WHOLE + 1), b""))
    finally:
        os.close(descriptor)


def decode(data: bytes, encoding: str = "utf-8") -> str:
    """Text, with a replacement character for what is none."""
    return data.decode(encoding, "replace")


class LineIndex:
    """Counts the newlines of a document block by block, each block once, and only as far as somebody asks."""

    def __init__(self) -> None:
        self._before = array("Q", [0])
        self._last = (0, 0)
        self._lock = Lock()

    def newlines_before(self, data: Data, position: int) -> int:
        """How many newlines stand before a byte offset; cheap when offsets ascend."""
        origin, count = self._last
        if not 0 <= position - origin <= _BLOCK:
            block = position // _BLOCK
            self._extend(data, block)
            origin, count = block * _BLOCK, self._before[block]
        count += data[origin:position].count(b"\n")
        self._last = (position, count)
        return count

    def start_of(self, data: Data, number: int) -> int | None:
        """Byte offset where a line begins, or None past the end."""
        wanted = number - 1
        with self._lock:
            while self._before[-1] < wanted and self._grow(data):
                pass
        if self._before[-1] < wanted:
            return None
        block = max(0, bisect_right(self._before, wanted - 1) - 1)
        position = block * _BLOCK
        for _ in range(wanted - self._before[block]):
            position = data.find(b"\n", position) + 1
        return position if position < len(data) else None

    def _extend(self, data: Data, block: int) -> None:
        with self._lock:
            while len(self._before) <= block and self._grow(data):
                pass

    def _grow(self, data: Data) -> bool:
        start = (len(self._before) - 1) * _BLOCK
        if start >= len(data):
            return False
        self._before.append(self._before[-1] + data[start : start + _BLOCK].count(b"\n"))
        return True


def piece_end(data: Data, start: int) -> int:
    """End of a piece of whole lines of about a megabyte."""
    if len(data) - start <= _PIECE:
        return len(data)
    end = data.rfind(b"\n", start, start + _PIECE) + 1
    if end <= start:
        end = data.find(b"\n", start + _PIECE) + 1
    return end or len(data)


def cut(data: Data, start: int, end: int, *, whole_lines: bool) -> int:
    if end >= len(data):
        return len(data)
    if whole_lines:
        newline = data.rfind(b"\n", start, end)
        if newline >= start:
            return newline + 1
    return _character_start(data, end, lowest=start + 1)


def resume(data: Data, wanted: int, end: int, *, whole_lines: bool) -> int:
    """Where the next chunk begins: at a line within the overlap, else at a character."""
    if wanted >= end:
        return end
    if whole_lines:
        newline = data.find(b"\n", max(0, wanted - 1), end - 1)
        if newline >= 0 or data[end - 1] == 10:
            return newline + 1 if newline >= 0 else end
    return _character_start(data, max(0, wanted), lowest=0)


def _character_start(data: Data, position: int, *, lowest: int) -> int:
    for candidate in range(position, max(lowest, position - 3) - 1, -1):
        if data[candidate] & 0xC0 != 0x80:
            return candidate
    return max(lowest, position)
