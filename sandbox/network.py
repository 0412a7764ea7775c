"""The only way out of a sandbox: one HTTP request at a time, checked, resolved and made by the host.

Everything in a request is hostile, and so is the answer. A host and port must stand in the policy; the address behind
the name is looked up once, checked, and that very address is connected to, so that a name cannot mean one
thing when it is checked and another when it is used. Knows nothing of jobs, traces or cells.
"""

import asyncio
import base64
import binascii
import functools
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from sandbox.addresses import (
    LOCALHOST,
    BadAddress,
    Endpoint,
    IPAddress,
    Target,
    endpoint,
    is_public,
    literal,
    plain_address,
    target,
)
from sandbox.errors import SandboxError
from sandbox.guest.frames import JsonObject, JsonValue
from sandbox.http1 import LINE_BYTES, Answer, BadAnswer, Headers, read_answer, request_bytes
from sandbox.policy import Network

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]

#: The name of the host call.
CALL = "network"
OFF = (
    "the network is off in this sandbox: work with the evidence and the calls you have. "
    "Whoever runs this can open it, host by host, with the network policy's allow list, as in 'example.org:443'"
)

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_HEADERS = 100
_HEADERS_CHARACTERS = 32_000
#: Headers that say where a message ends or whom it is for: the host's to write. All else is data.
_RESERVED = frozenset(
    {
        *("host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade"),
        *("keep-alive", "expect", "proxy-connection", "proxy-authorization", "proxy-authenticate"),
    }
)
_AT_ONCE = 8
_ADDRESSES = 8
_LOOPBACK = ("127.0.0.1", "::1")
_SHOWN = 200


class NetworkRefused(SandboxError):
    """A request was not made, or its answer not taken. The message is for the cell."""

    guest_error = "NetworkRefused"


@dataclass(frozen=True)
class _Request:
    method: str
    target: Target
    headers: Headers
    body: bytes
    seconds: float

    def bytes(self) -> bytes:
        given = {name.lower() for name, _ in self.headers}
        own = [("Host", self.target.host_header), ("Connection", "close")]
        if "accept-encoding" not in given:
            own.append(("Accept-Encoding", "identity"))
        if self.body or self.method in {"POST", "PUT", "PATCH"}:
            own.append(("Content-Length", str(len(self.body))))
        return request_bytes(self.method, self.target.path, (*own, *self.headers), self.body)


class Proxy:
    """Makes the requests of one session. `resolve` and `tls` can be replaced; the checks cannot."""

    def __init__(
        self, policy: Network, *, resolve: Resolve | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._policy = policy
        self._allowed = frozenset(map(endpoint, policy.allow))
        self._resolve = resolve or _look_up
        self._tls = tls
        self._free = asyncio.Semaphore(_AT_ONCE)

    async def answer(
        self, payload: JsonObject, *, room: Callable[[], Awaitable[None]] | None = None
    ) -> JsonObject:
        """Make the request that a guest asked for; raises NetworkRefused with what the cell is told.

        With `room`, the session's, nothing is fetched for a guest that does not read what it was answered before.
        """
        request = self._read(payload)
        self._must_be_allowed(request.target.endpoint)
        try:
            async with asyncio.timeout(request.seconds), self._free:
                if room is not None:
                    await room()
                addresses = await self._addresses(request.target.endpoint)
                address, answer = await self._exchange(request, addresses)
        except TimeoutError:
            raise NetworkRefused(
                f"{request.target.endpoint} did not answer within {request.seconds:g} seconds"
            ) from None
        except BadAnswer as error:
            raise NetworkRefused(f"the answer of {request.target.endpoint} was not taken: {error}") from None
        return {
            "status": answer.status,
            "reason": answer.reason,
            "headers": [list(header) for header in answer.headers],
            "body": base64.b64encode(answer.body).decode("ascii"),
            "address": str(Endpoint(str(address), request.target.endpoint.port)),
        }

    # ---------------------------------------------------------------- what is asked

    def _read(self, payload: JsonObject) -> _Request:
        if not set(payload) <= {"method", "url", "headers", "body", "timeout"}:
            raise NetworkRefused("a request has method, url, headers, body and timeout, and nothing else")
        method = payload.get("method", "GET")
        if not isinstance(method, str) or method not in _METHODS:
            raise NetworkRefused(f"the method must be one of {', '.join(sorted(_METHODS))}")
        return _Request(
            method,
            _target(payload.get("url")),
            _headers(payload.get("headers")),
            self._body(payload.get("body")),
            self._seconds(payload.get("timeout")),
        )

    def _body(self, value: JsonValue) -> bytes:
        if value is None:
            return b""
        if not isinstance(value, str) or len(value) > self._policy.request_bytes * 4 // 3 + 4:
            raise NetworkRefused(f"the body must be at most {self._policy.request_bytes} bytes")
        try:
            body = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise NetworkRefused("the body must be base64") from None
        if len(body) > self._policy.request_bytes:
            raise NetworkRefused(f"the body must be at most {self._policy.request_bytes} bytes")
        return body

    def _seconds(self, value: JsonValue) -> float:
        if value is None:
            return self._policy.seconds
        # Written so that a NaN is refused too.
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            raise NetworkRefused("the timeout must be a number of seconds")
        return min(float(value), self._policy.seconds)

    # ---------------------------------------------------------------- where it may go

    def _must_be_allowed(self, wanted: Endpoint) -> None:
        if not self._allowed:
            raise NetworkRefused(OFF)
        if wanted not in self._allowed:
            raise NetworkRefused(
                f"{wanted} is not on this sandbox's allow list ({', '.join(sorted(map(str, self._allowed)))})"
            )

    async def _addresses(self, wanted: Endpoint) -> list[IPAddress]:
        """The addresses behind an allowed host, looked up once. One that is closed closes them all."""
        own = literal(wanted.host)
        if own is not None:
            return [own]
        if wanted.host == LOCALHOST:
            return [plain_address(address) for address in _LOOPBACK]
        try:
            found = [plain_address(text) for text in await self._resolve(wanted.host, wanted.port)]
        except (OSError, ValueError):
            raise NetworkRefused(f"{wanted.host} could not be looked up") from None
        for address in found:
            if not is_public(address) and Endpoint(str(address), wanted.port) not in self._allowed:
                raise NetworkRefused(
                    f"{wanted.host} leads to {address}, which is a private, local or reserved address: "
                    "it must stand on the allow list itself"
                )
        if not found:
            raise NetworkRefused(f"{wanted.host} could not be looked up")
        return list(dict.fromkeys(found))[:_ADDRESSES]

    # ---------------------------------------------------------------- the exchange

    async def _exchange(self, request: _Request, addresses: list[IPAddress]) -> tuple[IPAddress, Answer]:
        wanted = request.target.endpoint
        address, connection = await self._connect(wanted, addresses)
        try:
            reader, writer = await asyncio.open_connection(
                sock=connection, limit=LINE_BYTES, **self._tls_for(request.target)
            )
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError):
                raise NetworkRefused(f"no trusted connection to {wanted}: {_tls_trouble(error)}") from None
            raise
        try:
            writer.write(request.bytes())
            await writer.drain()
            most = self._policy.response_bytes
            return address, await read_answer(reader, method=request.method, most_bytes=most)
        except OSError:
            raise NetworkRefused(f"{wanted} closed the connection") from None
        finally:
            writer.transport.abort()

    async def _connect(self, wanted: Endpoint, addresses: list[IPAddress]) -> tuple[IPAddress, socket.socket]:
        """Connect to the first of the checked addresses that answers. They are numbers: nothing is looked up again."""
        loop = asyncio.get_running_loop()
        for address in addresses:
            family = socket.AF_INET if address.version == 4 else socket.AF_INET6
            try:
                connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            except OSError:
                continue
            try:
                connection.setblocking(False)
                await loop.sock_connect(connection, (str(address), wanted.port))
            except OSError:
                connection.close()
            except BaseException:
                connection.close()
                raise
            else:
                return address, connection
        raise NetworkRefused(f"{wanted} cannot be connected to")

    def _tls_for(self, wanted: Target) -> dict[str, Any]:
        if wanted.scheme == "http":
            return {}
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        return {"ssl": self._tls, "server_hostname": wanted.endpoint.host}


def _tls_trouble(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    return str(error.reason) if isinstance(error, ssl.SSLError) else "it was closed"


def _target(url: JsonValue) -> Target:
    if not isinstance(url, str):
        raise NetworkRefused("the url must be text")
    try:
        return target(url)
    except BadAddress as error:
        raise NetworkRefused(f"the url {url[:_SHOWN]!a} cannot be used: {error}") from None


def _headers(value: JsonValue) -> Headers:
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > _HEADERS:
        raise NetworkRefused(f"headers are a list of at most {_HEADERS} pairs of name and value")
    headers = tuple(map(_header, value))
    if sum(len(name) + len(text) for name, text in headers) > _HEADERS_CHARACTERS:
        raise NetworkRefused(f"all headers together must be at most {_HEADERS_CHARACTERS} characters")
    return headers


def _header(pair: JsonValue) -> tuple[str, str]:
    match pair:
        case [str(name), str(text)] if _NAME.fullmatch(name) and _VALUE.fullmatch(text):
            if name.lower() in _RESERVED:
                raise NetworkRefused(f"the header {name} is written by the host, not by the request")
            return name, text
        case _:
            raise NetworkRefused(
                "a header is a name and a value on one line, without control characters: it was not sent"
            )


@functools.cache
def _lookers() -> ThreadPoolExecutor:
    """Threads of their own: a look-up cannot be cut off, and those of the loop have other work."""
    return ThreadPoolExecutor(max_workers=4, thread_name_prefix="sandbox-lookup")


async def _look_up(host: str, port: int) -> Sequence[str]:
    ask = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_lookers(), ask)
    return [str(address[0]) for _, _, _, _, address in found]
