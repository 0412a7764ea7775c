"""The workspace as a series of records, step by step, so that the relay can do other work in between.

What it says is checked again by the host: code inside may change the tree, or this process, at any time.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

from sandbox.backends.docker.inside import records
from sandbox.walking import DIRECTORY, Found, Passed, Tally, Walk

_SHOWN_BYTES = 600


@dataclass(frozen=True, kw_only=True)
class Limits:
    files: int
    total_bytes: int
    file_bytes: int
    depth: int
    entries: int
    only: tuple[str, ...]


def steps(top: str, limits: Limits) -> Iterator[bytes]:
    """Yield encoded records; the last says that all is sent."""
    tally = Tally(limits)
    directory = os.open(top, DIRECTORY)
    try:
        for step in Walk(tally).steps(directory):
            match step:
                case Passed(path=path, reason=reason):
                    yield _skipped(path, reason)
                case Found(fd=fd, path=path):
                    yield from _sent(fd, path, tally)
    except OSError as error:
        yield _skipped(b"", f"the rest was not looked at: {error.strerror}")
    finally:
        os.close(directory)
    yield records.encode(records.COLLECTED)


def _sent(fd: int, path: bytes, tally: Tally) -> Iterator[bytes]:
    """Send as many bytes as the file holds now; what is appended meanwhile is not waited for."""
    left = os.fstat(fd).st_size
    tally.count(left)
    yield records.encode(records.FILE, path)
    while left > 0 and (data := os.read(fd, min(left, records.MOST_BYTES))):
        left -= len(data)
        yield records.encode(records.DATA, data)
    yield records.encode(records.DATA)


def _skipped(path: bytes, reason: str) -> bytes:
    shown = path[:_SHOWN_BYTES].hex()
    return records.encode(records.SKIPPED, json.dumps([shown, reason]).encode())
