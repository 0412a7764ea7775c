"""Files on their way in: each grows piece by piece, one writer at a time, and is checked against its hash when it is whole."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from controlplane.adapters.content_store import Blob, ContentStore
from controlplane.adapters.private_files import make_folder, private_opener
from controlplane.errors import InvalidRequest, NotFound, Stale, Unavailable


class Piece:
    """The right to write on at the end of a file."""

    def __init__(self, opened: int, *, offset: int, size_bytes: int) -> None:
        self._opened = opened
        self.received_bytes = offset
        self._size_bytes = size_bytes

    def write(self, content: bytes) -> None:
        if self.received_bytes + len(content) > self._size_bytes:
            raise InvalidRequest(
                f"more was sent than the {self._size_bytes:,} bytes that were announced: begin another upload"
            )
        try:
            view = memoryview(content)
            while view:
                written = os.write(self._opened, view)
                self.received_bytes += written
                view = view[written:]
        except OSError as error:
            raise Unavailable(
                f"the disk did not take what was sent ({error.strerror}): try again later"
            ) from error


class Inbox:
    """Uploads of one home."""

    def __init__(self, home: Path, store: ContentStore) -> None:
        self._folder = home / "uploads"
        self._store = store

    @contextmanager
    def writing(self, upload_id: str, *, offset: int, size_bytes: int) -> Iterator[Piece]:
        """Write on at `offset`, which must be where the file ends."""
        make_folder(self._folder)
        opened = private_opener(str(self._folder / upload_id), os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise Stale(f"upload {upload_id} is being written to: ask again where it stands") from None
            stands = os.lseek(opened, 0, os.SEEK_END)
            if stands != offset:
                raise Stale(f"upload {upload_id} stands at {stands} bytes, not at {offset}: go on from there")
            piece = Piece(opened, offset=offset, size_bytes=size_bytes)
            try:
                yield piece
            finally:
                os.fsync(opened)
        finally:
            os.close(opened)

    def received_bytes(self, upload_id: str) -> int:
        try:
            return (self._folder / upload_id).stat().st_size
        except FileNotFoundError:
            return 0

    def take(self, upload_id: str, *, digest: str) -> Blob:
        """Keep a whole file under its hash; one that has another is dropped."""
        path = self._folder / upload_id
        try:
            # The hash is taken first: nothing else than what was announced is kept.
            found = self._store.digest_of(path)
            if found != digest:
                self.drop(upload_id)
                raise InvalidRequest(
                    f"what was sent has the hash {found}, not {digest}: it was dropped, send it again"
                )
            blob = self._store.keep_file(path)
        except FileNotFoundError:
            raise NotFound(f"there is no upload {upload_id!r}") from None
        self._store.sync()
        self.drop(upload_id)
        return blob

    def find(self, digest: str) -> Blob | None:
        return self._store.find(digest)

    def drop(self, upload_id: str) -> None:
        (self._folder / upload_id).unlink(missing_ok=True)
