"""The host's end of the socket: whole frames in, whole frames out, never waiting long for a guest that does not read."""

import asyncio
import socket

from sandbox.guest import frames
from sandbox.guest.frames import JsonObject
from sandbox.policy import Limits

_WRITE_SECONDS = 10.0
_QUEUED_BYTES = 32 << 20


class Channel:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: Limits) -> None:
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._writing = asyncio.Lock()
        self._sending = 0
        self._queued_bytes = 0
        # Clear while too much waits for the guest to read, in number or in bytes: then it is owed no more.
        self.has_room = asyncio.Event()
        self.has_room.set()
        # With a mark of zero, drain() waits until the kernel has taken everything.
        writer.transport.set_write_buffer_limits(0)

    @classmethod
    async def over(cls, link: socket.socket, limits: Limits) -> "Channel":
        reader, writer = await asyncio.open_connection(sock=link)
        return cls(reader, writer, limits)

    async def receive(self) -> tuple[JsonObject, int]:
        """Return the next frame and what it weighs. Raises FrameError for a violation, EOFError at the end."""
        header = await self._reader.readexactly(frames.HEADER.size)
        length = frames.body_length(header, max_bytes=self._limits.frame_bytes)
        body = await self._reader.readexactly(length)
        return frames.decode(body, max_depth=self._limits.frame_depth), frames.weight(body)

    def encode(self, frame: JsonObject) -> bytes:
        """Return the frame's bytes. Raises FrameError for what the guest would refuse as well."""
        data = frames.encode(frame, max_bytes=self._limits.frame_bytes)
        frames.check(frame, max_depth=self._limits.frame_depth)
        return data

    async def send(self, data: bytes) -> None:
        """Send encoded frames. Raises TimeoutError when the guest does not read; a guest that is gone is no error."""
        self._count(1, len(data))
        try:
            async with self._writing:
                if self._writer.is_closing():
                    return
                self._writer.write(data)
                async with asyncio.timeout(_WRITE_SECONDS):
                    await self._writer.drain()
        except ConnectionError:
            return
        finally:
            self._count(-1, -len(data))

    def _count(self, sends: int, size: int) -> None:
        self._sending += sends
        self._queued_bytes += size
        if self._sending < self._limits.calls_in_flight and self._queued_bytes < _QUEUED_BYTES:
            self.has_room.set()
        else:
            self.has_room.clear()

    def close(self) -> None:
        self._writer.transport.abort()
