"""HTTP to one server, synchronously and from many threads: connections that are kept and taken in turn, strict times, no proxies."""

import http.client
import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

import zstandard

from rlm_worker.contracts.base import Contract, JsonObject
from rlm_worker.contracts.gateway import GatewayDown
from rlm_worker.errors import WorkerError

#: Servers hang up on silent connections after five seconds; a request sent into that moment would be lost.
_IDLE_SECONDS = 4.0
_CONNECT_SECONDS = 10.0
#: Bodies from here on travel packed: below, packing costs more than it saves.
_PACKED_BYTES = 4_096
#: Answers are not unpacked past this size, nor read.
_MOST_BYTES = 256 << 20


class BadAddress(WorkerError):
    """The address of a server cannot be used."""


@dataclass(frozen=True, kw_only=True)
class Server:
    """Where a control plane is, and how it is spoken to."""

    url: str
    key: str
    #: Certificates that are trusted instead of the machine's.
    ca_file: Path | None = None
    #: Send the key in clear text to another machine.
    is_clear_text_allowed: bool = False
    #: How long an answer is waited for.
    seconds: float = 30.0


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def problem(self) -> JsonObject:
        """What a refusal says; nothing when a stranger answered."""
        try:
            said = json.loads(self.body)
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}


class Link:
    """Requests to one server. A connection serves one request at a time and is kept for the next."""

    def __init__(self, server: Server) -> None:
        parts = urlsplit(server.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadAddress(f"{server.url!r} is no address of a server: it looks like https://HOST:PORT")
        if parts.scheme == "http" and not (server.is_clear_text_allowed or is_loopback(parts.hostname)):
            raise BadAddress(
                f"{server.url!r} would carry the key in clear text: use https, or --insecure where the network "
                "itself is trusted"
            )
        if not (server.key and server.key.isascii() and server.key.isprintable()):
            raise BadAddress("the key is empty or has characters that no key has: give it as it was issued")
        self._host, self._port = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._seconds = server.seconds
        self._tls = _tls(server.ca_file) if parts.scheme == "https" else None
        self._headers = {
            "Authorization": f"Bearer {server.key}",
            "Accept-Encoding": "zstd",
            "Content-Type": "application/json",
        }
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._lock = threading.Lock()

    def post(self, path: str, body: bytes, *, seconds: float | None = None, is_safe: bool = True) -> Reply:
        """Send a request. `is_safe`: the same again changes nothing, so one that met a closed connection is sent again."""
        packed, headers = _packed(body)
        return self._exchange("POST", path, packed, headers, seconds=seconds, is_safe=is_safe)

    def put(self, path: str, body: bytes) -> Reply:
        headers = {"Content-Type": "application/octet-stream"}
        return self._exchange("PUT", path, body, headers, seconds=None, is_safe=True)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def _exchange(
        self,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        seconds: float | None,
        is_safe: bool,
    ) -> Reply:
        wanted = self._seconds if seconds is None else seconds
        connection = self._kept()
        if connection is not None:
            try:
                return self._over(connection, method, path, body, headers, wanted)
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError) as error:
                # The server had closed it; had it answered a byte, the error would be another.
                if not is_safe:
                    raise self._down(error) from error
            except (OSError, http.client.HTTPException) as error:
                raise self._down(error) from error
        try:
            return self._over(self._opened(), method, path, body, headers, wanted)
        except (OSError, http.client.HTTPException) as error:
            raise self._down(error) from error

    def _over(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        seconds: float,
    ) -> Reply:
        try:
            if connection.sock is not None:
                connection.sock.settimeout(seconds)
            connection.request(method, f"{self._prefix}{path}", body, {**self._headers, **headers})
            response = connection.getresponse()
            content = _not_too_long(response.read(_MOST_BYTES + 1))
            told = {name.lower(): value for name, value in response.getheaders()}
            reply = Reply(status=response.status, headers=told, body=_unpacked(content, told))
        except BaseException:
            connection.close()
            raise
        if response.will_close:
            connection.close()
        else:
            self._keep(connection)
        return reply

    def _down(self, error: Exception) -> GatewayDown:
        where = f"{self._host}:{self._port or ('443' if self._tls else '80')}"
        return GatewayDown(f"the control plane at {where} did not answer: {error or type(error).__name__}")

    def _opened(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            made: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=_CONNECT_SECONDS, context=self._tls
            )
        else:
            made = http.client.HTTPConnection(self._host, self._port, timeout=_CONNECT_SECONDS)
        made.connect()
        made.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def _kept(self) -> http.client.HTTPConnection | None:
        """A connection that is still open, the one used last."""
        now = time.monotonic()
        while True:
            with self._lock:
                if not self._idle:
                    return None
                at, connection = self._idle.pop()
            if now - at < _IDLE_SECONDS and _is_open(connection):
                return connection
            connection.close()

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            self._idle.append((time.monotonic(), connection))


def _is_open(connection: http.client.HTTPConnection) -> bool:
    """Whether nothing has come since the last answer: what would come now is the end."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN | select.POLLHUP | select.POLLERR)
    return not poll.poll(0)


def _packed(body: bytes) -> tuple[bytes, dict[str, str]]:
    if len(body) < _PACKED_BYTES:
        return body, {}
    return zstandard.ZstdCompressor(level=1).compress(body), {"Content-Encoding": "zstd"}


def _unpacked(body: bytes, headers: Mapping[str, str]) -> bytes:
    coding = headers.get("content-encoding", "identity")
    if coding == "identity":
        return body
    if coding != "zstd":
        raise http.client.HTTPException(f"the answer is packed as {coding!r}, which was not asked for")
    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(body) as reader:
            return _not_too_long(reader.read(_MOST_BYTES + 1))
    except zstandard.ZstdError as error:
        raise http.client.HTTPException(f"the answer cannot be unpacked: {error}") from error


def _not_too_long(body: bytes) -> bytes:
    if len(body) > _MOST_BYTES:
        raise http.client.HTTPException(f"the answer is longer than {_MOST_BYTES:,} bytes")
    return body


def _tls(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise BadAddress(f"the certificates in {str(ca_file)!r} cannot be read: {error}") from error


def is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def encoded(value: Contract) -> bytes:
    """JSON of a contract. Halves of surrogate pairs, which are no UTF-8, are written as escapes."""
    try:
        return value.model_dump_json().encode()
    except ValueError:
        return json.dumps(value.model_dump(mode="json")).encode()
