"""Records on the attached pipe, both ways: a kind, a 4-byte length, data. Knows bytes, not what they mean.

Used on both sides, standard library only. A record that breaks the rules ends the session.
"""

import struct
from collections.abc import Iterator

HEADER = struct.Struct(">cI")
MOST_BYTES = 1 << 16  # of one record; longer data goes in several

# From the host.
PLAN, INTERRUPT, COLLECT, LEAVE = b"P", b"I", b"W", b"Q"
# From inside.
REPORT, STDOUT, STDERR, TAKEN, EXIT = b"R", b"1", b"2", b"A", b"X"
FILE, DATA, SKIPPED, COLLECTED = b"f", b"d", b"s", b"w"
# Both.
CHANNEL = b"C"

#: How much of the channel the host may send before the relay says that the runner took it. The relay therefore
#: never stops reading, and an order from the host is never stuck behind data that nobody takes.
WINDOW_BYTES = 1 << 20


class RecordError(ValueError):
    """The bytes are no record that may be sent; the message says why."""


def encode(kind: bytes, data: bytes = b"") -> bytes:
    """Return the data as one record, or as several where one cannot hold it."""
    pieces = [data[at : at + MOST_BYTES] for at in range(0, len(data), MOST_BYTES)] or [b""]
    return b"".join(HEADER.pack(kind, len(piece)) + piece for piece in pieces)


class Decoder:
    """Takes bytes as they come, gives whole records. Holds at most one unfinished record."""

    def __init__(self, *, kinds: frozenset[bytes]) -> None:
        self._kinds = kinds
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return the records that are complete now."""
        self._held += data
        while len(self._held) >= HEADER.size:
            kind, length = HEADER.unpack_from(self._held)
            if kind not in self._kinds:
                raise RecordError(f"a record of an unknown kind {kind!r}")
            if length > MOST_BYTES:
                raise RecordError(f"a record of {length} bytes was announced, {MOST_BYTES} are allowed")
            end = HEADER.size + length
            if len(self._held) < end:
                return
            body = bytes(self._held[HEADER.size : end])
            del self._held[:end]
            yield kind, body
