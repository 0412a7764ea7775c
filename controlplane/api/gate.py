"""What is looked at before anything else of a request: how long its body is, of which type, and from which page it comes."""

from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controlplane.api.problems import WrongType, answer_to
from controlplane.errors import Denied, TooLarge
from rlm_worker.contracts.remote import GATEWAY_PATH

#: Under these names a server without keys is asked; None: under any.
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
#: Whoever sends these asks for somebody else, who may be anybody.
_PASSED_ON = ("forwarded", "x-forwarded-for", "via")
_BYTES = "application/octet-stream"


class Gate:
    """Refuses early. `is_open`: callers without a key are served, so that no page of another site may send them."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_body_bytes: int,
        max_piece_bytes: int,
        is_open: bool,
        hosts: Iterable[str] | None = LOOPBACK,
    ) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes
        self._max_piece_bytes = max_piece_bytes
        self._is_open = is_open
        self._hosts = None if hosts is None else frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The gateway has keys, limits and media types of its own.
        if scope["type"] != "http" or scope["path"].startswith(f"{GATEWAY_PATH}/"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        is_piece = headers.get("content-type", "").split(";")[0].strip().lower() == _BYTES
        # Workers send many events at once, and texts that models wrote.
        is_large = is_piece or scope["path"].startswith(f"{GATEWAY_PATH}/")
        most = self._max_piece_bytes if is_large else self._max_body_bytes
        refusal = self._refusal(scope, headers, most=most)
        if refusal is None:
            await self._app(scope, _bounded(receive, most), send)
            return
        await answer_to(refusal, instance=scope["path"])(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers, *, most: int) -> Exception | None:
        if self._is_open and not self._is_own(headers):
            return Denied("the request comes from a page of another site, and is not served without a key")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > most:
            return _too_large(most)
        has_body = length not in ("", "0") or "transfer-encoding" in headers
        if has_body and not _is_taken(scope, headers):
            return WrongType(f"a body of type {headers.get('content-type', '')[:100]!r} is not taken here")
        return None

    def _is_host(self, host: str) -> bool:
        return self._hosts is None or host in self._hosts

    def _is_own(self, headers: Headers) -> bool:
        """A browser says from where it was told to ask; a name that leads here by a foreign name server is not ours."""
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
        origin = headers.get("origin")
        is_same = origin is None or urlsplit(origin).netloc == headers.get("host")
        is_direct = not any(name in headers for name in _PASSED_ON)
        site = headers.get("sec-fetch-site", "none")
        return self._is_host(host) and is_same and is_direct and site in ("none", "same-origin")


def _is_taken(scope: Scope, headers: Headers) -> bool:
    kind = headers.get("content-type", "").split(";")[0].strip().lower()
    if kind == _BYTES:
        return bool(scope["method"] == "PATCH")
    return kind == "application/json"


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"the body is longer than the {most:,} bytes that are taken at once")


def _bounded(receive: Receive, most: int) -> Receive:
    """For bodies that do not say how long they are."""
    total = 0

    async def receive_bounded() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > most:
            # In the form that the framework lets through while it reads a body.
            raise HTTPException(413, str(_too_large(most)))
        return message

    return receive_bounded
