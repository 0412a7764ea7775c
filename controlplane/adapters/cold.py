"""Cold storage: what is seldom read, compressed, each piece under the hash of its bytes; a folder, or any place that fsspec knows."""

import hashlib
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Any

from controlplane.adapters.private_files import replace_file
from controlplane.errors import Tampered, Unavailable

_LEVEL = 9
#: Pieces in memory: whoever reads page by page meets the same one again.
_KEPT = 4


class ColdStorage:
    """Pieces by the hash of what is stored. They are written once; reading one that was changed is refused."""

    def __init__(self, place: Path | str) -> None:
        self._place = place if isinstance(place, str) and "://" in place else Path(place)
        self._lock = Lock()
        self._recent: OrderedDict[str, bytes] = OrderedDict()

    def keep(self, content: bytes) -> str:
        """Store a piece and return its digest. It is on the disk, and it reads back as it is, when this returns."""
        import zstandard  # noqa: PLC0415 - of no use to whoever only looks at jobs

        packed = zstandard.ZstdCompressor(level=_LEVEL).compress(content)
        digest = hashlib.sha256(packed).hexdigest()
        self._write(digest, packed)
        if self._unpacked(digest, self._read(digest)) != content:
            raise Unavailable(f"the cold storage gives back another content than it took for {digest}")
        return digest

    def read(self, digest: str) -> bytes:
        with self._lock:
            if digest in self._recent:
                self._recent.move_to_end(digest)
                return self._recent[digest]
        content = self._unpacked(digest, self._read(digest))
        with self._lock:
            self._recent[digest] = content
            while len(self._recent) > _KEPT:
                self._recent.popitem(last=False)
        return content

    def _unpacked(self, digest: str, packed: bytes) -> bytes:
        import zstandard  # noqa: PLC0415

        if hashlib.sha256(packed).hexdigest() != digest:
            raise Tampered(f"the cold piece {self._name(digest)} was changed. It is refused")
        return zstandard.ZstdDecompressor().decompress(packed)

    def _name(self, digest: str) -> str:
        return f"{digest[:2]}/{digest}.zst"

    def _write(self, digest: str, packed: bytes) -> None:
        try:
            if isinstance(self._place, Path):
                replace_file(self._place / self._name(digest), packed)
            else:
                files, root = self._files()
                files.makedirs(f"{root}/{digest[:2]}", exist_ok=True)
                files.pipe_file(f"{root}/{self._name(digest)}", packed)
        except OSError as error:
            raise Unavailable(f"the cold storage does not take {self._name(digest)}: {error}") from error

    def _read(self, digest: str) -> bytes:
        try:
            if isinstance(self._place, Path):
                return (self._place / self._name(digest)).read_bytes()
            files, root = self._files()
            return bytes(files.cat_file(f"{root}/{self._name(digest)}"))
        except FileNotFoundError as error:
            raise Tampered(f"the cold piece {self._name(digest)} is missing") from error
        except OSError as error:
            raise Unavailable(f"the cold storage does not give {self._name(digest)}: {error}") from error

    def _files(self) -> tuple[Any, str]:
        import fsspec  # noqa: PLC0415

        files, root = fsspec.core.url_to_fs(str(self._place))
        return files, str(root).rstrip("/")
