"""The bytes of an attached container as the engine frames them, and our records in them. Trusts nothing of what is inside."""

import select
import socket
import struct
import time
from collections.abc import Iterator

from sandbox.backends.docker.inside import records

_HEADER = struct.Struct(">BxxxI")
_STDOUT, _STDERR = 1, 2
_COMPLAINT_BYTES = 4_000
_READ_BYTES = 1 << 16
FROM_INSIDE = frozenset(
    {
        *(records.REPORT, records.STDOUT, records.STDERR, records.CHANNEL, records.TAKEN, records.EXIT),
        *(records.FILE, records.DATA, records.SKIPPED, records.COLLECTED),
    }
)


class Attached:
    """Takes bytes from the engine, gives the relay's records. Of the relay's stderr it keeps the beginning."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self.complaint = b""
        self._records = records.Decoder(kinds=FROM_INSIDE)
        self._header = bytearray()
        self._stream = 0
        self._left = 0

    def receive(self) -> Iterator[tuple[bytes, bytes]]:
        """Read once and return the records that are complete now. Raises EOFError at the end, RecordError for nonsense."""
        data = memoryview(self.link.recv(_READ_BYTES))
        if not data:
            raise EOFError
        while data:
            if not self._left:
                taken = _HEADER.size - len(self._header)
                self._header += data[:taken]
                data = data[taken:]
                if len(self._header) == _HEADER.size:
                    self._stream, self._left = _HEADER.unpack(self._header)
                    self._header.clear()
                continue
            piece, data = data[: self._left], data[self._left :]
            self._left -= len(piece)
            if self._stream == _STDOUT:
                yield from self._records.feed(bytes(piece))
            elif self._stream == _STDERR:
                self.complaint += bytes(piece[: max(0, _COMPLAINT_BYTES - len(self.complaint))])

    def report(self, orders: bytes, *, seconds: float) -> bytes:
        """Send the first word and return the relay's answer to it. Raises TimeoutError, EOFError or RecordError."""
        deadline = time.monotonic() + seconds
        self.link.settimeout(seconds)
        self.link.sendall(records.encode(records.PLAN, orders) + records.encode(records.PLAN))
        text = b""
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.link], [], [], left)[0]:
                raise TimeoutError
            for kind, body in self.receive():
                if kind == records.EXIT:
                    raise EOFError
                if kind != records.REPORT:
                    continue  # output of what the guest imports; nobody has asked for it
                if not body:
                    return text
                text += body
                if len(text) > records.MOST_BYTES:
                    raise records.RecordError("the report is too long")
