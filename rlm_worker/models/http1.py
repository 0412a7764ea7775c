"""HTTP/1.1 for one origin: a pool of kept-alive connections with strict limits. Knows nothing of models.

Written for many small calls at once: one write a request, one parser pass an answer, no layers between.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
CONNECT_SECONDS = 10.0
# Common servers hang up after 5 s of silence; a request sent into that moment would be lost with its outcome unknown.
IDLE_SECONDS = 4.0


class HttpError(Exception):
    """An exchange that did not end with a whole answer."""


class CannotConnect(HttpError):
    """Nothing was sent."""


class ConnectionBroke(HttpError):
    """The request left; the answer did not arrive whole."""


class NotHttp(HttpError):
    """The peer broke the protocol or a limit."""


@dataclass(frozen=True, slots=True)
class Origin:
    host: str
    port: int
    is_tls: bool


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes
    keeps_alive: bool


class ResponseParser:
    """Bytes in, at most one Response out; raises NotHttp on anything outside the grammar or the limits."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: tuple[int, dict[str, str], bool] | None = None
        self._length: int | None = None
        self._is_chunked = False
        self._chunks = bytearray()

    @property
    def has_bytes(self) -> bool:
        return bool(self._buffer) or self._head is not None

    def feed(self, data: bytes) -> Response | None:
        self._buffer += data
        while self._head is None:
            if not self._read_head():
                return None
        if self._is_chunked:
            return self._read_chunks()
        if len(self._buffer) > MAX_BODY_BYTES:
            raise NotHttp(f"the answer is longer than {MAX_BODY_BYTES} bytes")
        if self._length is None or len(self._buffer) < self._length:
            return None
        return self._finish(bytes(self._buffer[: self._length]), surplus=len(self._buffer) - self._length)

    def end(self) -> Response | None:
        """The peer closed: whole only when the length was to be told by closing."""
        if self._head is None or self._is_chunked or self._length is not None:
            return None
        return self._finish(bytes(self._buffer), surplus=1)

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0 and len(self._buffer) <= MAX_HEAD_BYTES:
            return False
        if end < 0 or end > MAX_HEAD_BYTES:
            raise NotHttp(f"the answer's head is longer than {MAX_HEAD_BYTES} bytes")
        first, *lines = bytes(self._buffer[:end]).decode("latin-1").split("\r\n")
        del self._buffer[: end + 4]
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if not version.startswith("HTTP/1.") or not (code.isascii() and code.isdigit() and len(code) == 3):
            raise NotHttp("the answer does not begin with an HTTP/1 status line")
        headers = _parse_headers(lines)
        status = int(code)
        if 100 <= status < 200:
            return True
        self._set_framing(status, headers)
        closes = "close" in headers.get("connection", "").lower() or version == "HTTP/1.0"
        self._head = (status, headers, not closes)
        return True

    def _set_framing(self, status: int, headers: Mapping[str, str]) -> None:
        coding = headers.get("transfer-encoding", "").lower()
        self._is_chunked = coding == "chunked"
        if coding and not self._is_chunked:
            raise NotHttp(f"transfer encoding {coding[:40]!r} is not known")
        length = headers.get("content-length")
        if status in {204, 304}:
            self._length = 0
        elif length is not None and not self._is_chunked:
            if not (length.isascii() and length.isdigit()) or int(length) > MAX_BODY_BYTES:
                raise NotHttp(f"content length {length[:40]!r} is not a number up to {MAX_BODY_BYTES}")
            self._length = int(length)

    def _read_chunks(self) -> Response | None:
        while (line_end := self._buffer.find(b"\r\n")) >= 0:
            size_text = bytes(self._buffer[:line_end]).split(b";", 1)[0].strip()
            try:
                size = int(size_text, 16)
            except ValueError:
                raise NotHttp("a chunk has no size") from None
            if size < 0 or len(self._chunks) + size > MAX_BODY_BYTES:
                raise NotHttp(f"the answer is longer than {MAX_BODY_BYTES} bytes")
            if size == 0:
                return self._read_trailer(line_end)
            stop = line_end + 2 + size
            if len(self._buffer) < stop + 2:
                return None
            if self._buffer[stop : stop + 2] != b"\r\n":
                raise NotHttp("a chunk is longer than its size")
            self._chunks += self._buffer[line_end + 2 : stop]
            del self._buffer[: stop + 2]
        if len(self._buffer) > MAX_HEAD_BYTES:
            raise NotHttp("a chunk has no size")
        return None

    def _read_trailer(self, line_end: int) -> Response | None:
        end = self._buffer.find(b"\r\n\r\n", line_end)
        if end < 0:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise NotHttp("the trailer is too long")
            return None
        return self._finish(bytes(self._chunks), surplus=len(self._buffer) - end - 4)

    def _finish(self, body: bytes, *, surplus: int) -> Response:
        assert self._head is not None
        status, headers, keeps_alive = self._head
        return Response(status, headers, body, keeps_alive and surplus == 0)


def _parse_headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise NotHttp(f"{line[:40]!r} is not a header")
        headers[name.lower()] = value.strip()
    return headers


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._parser = ResponseParser()
        self._waiter: asyncio.Future[Response] | None = None
        self.is_open = False
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not every event loop's transports are subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self._waiter.done():
            self.abort()  # an answer nobody asked for: the stream can no longer be trusted
            return
        try:
            response = self._parser.feed(data)
        except NotHttp as error:
            self._waiter.set_exception(error)
            return
        if response is not None:
            self._waiter.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._waiter is None or self._waiter.done():
            return
        whole = self._parser.end() if exc is None else None
        if whole is not None:
            self._waiter.set_result(whole)
            return
        when = "in the middle of the answer" if self._parser.has_bytes else "before any answer"
        self._waiter.set_exception(ConnectionBroke(f"the connection was closed {when}"))

    async def exchange(self, request: bytes) -> Response:
        assert self._transport is not None
        self._parser = ResponseParser()
        self._waiter = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def abort(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()


class Pool:
    """Kept-alive connections to one origin, at most `size` at once; further requests wait their turn."""

    def __init__(self, origin: Origin, *, size: int) -> None:
        self._origin = origin
        self._slots = asyncio.Semaphore(size)
        self._idle: deque[_Connection] = deque()
        self._tls = ssl.create_default_context() if origin.is_tls else None

    async def exchange(self, request: bytes) -> Response:
        """Sends once and reads the whole answer. When cancelled, the connection is closed."""
        async with self._slots:
            connection = self._take_idle() or await self._connect()
            try:
                response = await connection.exchange(request)
            except BaseException:
                connection.abort()
                raise
            if response.keeps_alive and connection.is_open:
                connection.idle_since = asyncio.get_running_loop().time()
                self._idle.append(connection)
            else:
                connection.abort()
            return response

    def _take_idle(self) -> _Connection | None:
        oldest_allowed = asyncio.get_running_loop().time() - IDLE_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.idle_since >= oldest_allowed:
                return connection
            connection.abort()
        return None

    async def _connect(self) -> _Connection:
        where = f"{self._origin.host}:{self._origin.port}"
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await asyncio.get_running_loop().create_connection(
                    _Connection, self._origin.host, self._origin.port, ssl=self._tls
                )
        except TimeoutError:
            raise CannotConnect(f"no connection to {where} within {CONNECT_SECONDS:g} s") from None
        except (OSError, ssl.SSLError) as error:
            raise CannotConnect(f"no connection to {where} ({error})") from error
        return connection

    def close(self) -> None:
        while self._idle:
            self._idle.pop().abort()
