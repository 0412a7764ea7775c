"""Artifacts out of a container: what the relay sends is checked against the limits again. Trusts no name and no size."""

import dataclasses
import json
import os
import select
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from sandbox.artifacts import Collected, Collection
from sandbox.backends.docker.inside import records
from sandbox.backends.docker.inside.records import RecordError
from sandbox.backends.docker.pump import Pump
from sandbox.errors import SessionEnded
from sandbox.escaping import escape_controls
from sandbox.policy import ArtifactLimits
from sandbox.walking import Unfit

_READ_BYTES = 1 << 16
_SILENCE_SECONDS = 30.0
_REASON_CHARACTERS = 200
_KINDS = frozenset({records.FILE, records.DATA, records.SKIPPED, records.COLLECTED})


def collect(pump: Pump, into: Path, limits: ArtifactLimits) -> Collected:
    """Ask for the workspace and write it out. Raises SessionEnded when there is no relay to ask, RecordError for nonsense."""
    into.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = os.open(into, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    source = pump.collect()
    try:
        pump.order(records.COLLECT, json.dumps(dataclasses.asdict(limits)).encode())
        with tempfile.NamedTemporaryFile(prefix="custody-artifact-") as staging:
            taking = _Taking(Collection(into, target, limits), limits, staging.file)
            for kind, body in _records(source):
                taking.take(kind, body)
        return taking.collection.collected()
    finally:
        os.close(source)
        os.close(target)


def _records(source: int) -> Iterator[tuple[bytes, bytes]]:
    decoder = records.Decoder(kinds=_KINDS)
    while True:
        if not select.select([source], [], [], _SILENCE_SECONDS)[0]:
            raise RecordError(f"the relay sent nothing of the workspace for {_SILENCE_SECONDS:.0f} seconds")
        data = os.read(source, _READ_BYTES)
        if not data:
            raise SessionEnded(
                "the container is gone, and its workspace with it: collect before the session ends"
            )
        for kind, body in decoder.feed(data):
            if kind == records.COLLECTED:
                return
            yield kind, body


class _Taking:
    """What has been sent so far. A file is written to a staging file first: it counts only when it is whole."""

    def __init__(self, collection: Collection, limits: ArtifactLimits, staging: IO[bytes]) -> None:
        self.collection = collection
        self._limits = limits
        self._staging = staging
        self._path: bytes | None = None
        self._size = 0
        self._told = 0

    def take(self, kind: bytes, body: bytes) -> None:
        if (kind == records.DATA) != (self._path is not None):
            raise RecordError("the relay mixed up the files of the workspace")
        if kind == records.DATA:
            self._take_data(body)
            return
        self._told += 1
        if self._told > 2 * self._limits.entries + 1:  # a directory may be named beside its entries
            raise RecordError("the relay names more files than it may look at")
        if kind == records.FILE:
            self._path, self._size = _checked(body, depth=self._limits.depth), 0
            self._staging.seek(0)
            self._staging.truncate()
        else:
            self._skip(body)

    def _take_data(self, body: bytes) -> None:
        assert self._path is not None
        if body:
            self._size += len(body)
            if self._size > self._limits.file_bytes:
                raise RecordError("the relay sent more of one file than is allowed")
            self._staging.write(body)
            return
        path, self._path = self._path, None
        self._staging.flush()
        self._staging.seek(0)
        if not self.collection.globs.match(os.fsdecode(path)):
            return
        try:
            self.collection.copy(self._staging.fileno(), path)
        except Unfit as reason:
            self.collection.skip(path, str(reason))

    def _skip(self, body: bytes) -> None:
        try:
            path, reason = json.loads(body)
            self.collection.skip(bytes.fromhex(path), escape_controls(str(reason))[:_REASON_CHARACTERS])
        except (ValueError, TypeError, RecursionError) as error:
            raise RecordError("the relay skipped a file without a proper reason") from error


def _checked(path: bytes, *, depth: int) -> bytes:
    """The path is for people only, yet it must be one that a walk can find."""
    parts = path.split(b"/")
    if b"\0" in path or any(part in {b"", b".", b".."} for part in parts) or len(parts) > depth + 1:
        raise RecordError("the relay sent a path that no walk can find")
    return path
