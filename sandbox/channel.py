"""The host's end of the socket: whole frames in, whole frames out, never waiting long for a guest that does not read."""

import asyncio
import socket

from sandbox.guest import frames
from sandbox.guest.frames import JsonObject
from sandbox.policy import Limits

_WRITE_SECONDS = 10.0


class Channel:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: Limits) -> None:
        self._reader = reader
        self._writer = writer
        self._limits = limits
        self._writing = asyncio.Lock()
        # With a mark of zero, drain() waits until the kernel has taken everything.
        writer.transport.set_write_buffer_limits(0)

    @classmethod
    async def over(cls, link: socket.socket, limits: Limits) -> "Channel":
        reader, writer = await asyncio.open_connection(sock=link)
        return cls(reader, writer, limits)

    async def receive(self) -> JsonObject:
        """Return the next frame. Raises FrameError for a violation, EOFError at the end."""
        header = await self._reader.readexactly(frames.HEADER.size)
        length = frames.body_length(header, max_bytes=self._limits.frame_bytes)
        return frames.decode(await self._reader.readexactly(length), max_depth=self._limits.frame_depth)

    def encode(self, frame: JsonObject) -> bytes:
        """Return the frame's bytes. Raises FrameError for what the guest would refuse as well."""
        data = frames.encode(frame, max_bytes=self._limits.frame_bytes)
        frames.check(frame, max_depth=self._limits.frame_depth)
        return data

    async def send(self, data: bytes) -> None:
        """Send encoded frames. Raises TimeoutError when the guest does not read; a guest that is gone is no error."""
        async with self._writing:
            try:
                self._writer.write(data)
                async with asyncio.timeout(_WRITE_SECONDS):
                    await self._writer.drain()
            except ConnectionError:
                return

    def close(self) -> None:
        self._writer.transport.abort()
