"""Files that workers of other machines hand in: piece by piece, kept under the hash of their content when they are whole."""

import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.adapters.private_files import make_folder, private_opener
from controlplane.adapters.unsynced import sync
from controlplane.errors import InvalidRequest, Unavailable
from rlm_worker.contracts.remote import KeptAnswer

_BLOCK = 1 << 20


class Arrivals:
    """What has come in so far. A piece sent again changes nothing; what does not hash to its name is thrown away."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where whole files are kept by content."""
        self._folder = folder
        self._lock = threading.Lock()

    def take(
        self, job_id: str, content: str, piece: bytes, *, offset: int, size: int, most: int
    ) -> KeptAnswer:
        """Take a piece that begins at `offset`; the answer says from where to go on."""
        if size > most:
            raise InvalidRequest(f"a file of {size:,} bytes is handed in: {most:,} are the most")
        kept = self._folder / content
        if kept.is_file() and kept.stat().st_size == size:
            return KeptAnswer(received_bytes=size, is_kept=True)
        try:
            with self._coming(job_id, content) as coming:
                return self._add(coming, kept, piece, offset=offset, size=size)
        except OSError as error:
            raise Unavailable(f"the disk did not take a file that was handed in: {error.strerror}") from error

    def _add(self, coming: Path, kept: Path, piece: bytes, *, offset: int, size: int) -> KeptAnswer:
        received = coming.stat().st_size
        if offset > received or offset + len(piece) > size:
            return KeptAnswer(received_bytes=received, is_kept=False)
        fresh = piece[received - offset :]
        if fresh:
            with coming.open("ab") as opened:
                opened.write(fresh)
        received += len(fresh)
        if received < size:
            return KeptAnswer(received_bytes=received, is_kept=False)
        if _digest(coming) != kept.name:
            coming.unlink()
            raise InvalidRequest(f"what was handed in as {kept.name[:12]} has another content: send it again")
        sync(coming)
        coming.replace(kept)
        sync(kept.parent)
        return KeptAnswer(received_bytes=size, is_kept=True)

    @contextmanager
    def _coming(self, job_id: str, content: str) -> Iterator[Path]:
        """The file as far as it has come, for one writer at a time, in this process and others."""
        make_folder(self._folder)
        name = hashlib.sha256(job_id.encode()).hexdigest()[:16]
        coming = self._folder / f".coming-{name}-{content}"
        with self._lock, open(coming, "ab", opener=private_opener) as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
            if not coming.exists():  # another process finished it a moment ago
                os.close(private_opener(str(coming), os.O_CREAT | os.O_WRONLY))
            yield coming


def _digest(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as opened:
        while block := opened.read(_BLOCK):
            total.update(block)
    return total.hexdigest()
