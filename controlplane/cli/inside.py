"""The API of a home, asked in this process: what looks after a home asks the same requests as what looks after a server."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx2

from controlplane.cli.flags import Where
from controlplane.cli.home import client_of, opened_home
from controlplane.client import Client

if TYPE_CHECKING:
    from controlplane.bootstrap import App

#: Nobody listens there: it is what a request in this process says it is for.
_ADDRESS = "http://127.0.0.1"


@contextmanager
def looking_after(where: Where) -> Iterator[Client]:
    """A client of the server, or of a home of this machine as its owner."""
    if where.server is not None:
        with client_of(where.server) as client:
            yield client
        return
    with opened_home(where.home) as app, client_inside(app) as client:
        yield client


@contextmanager
def client_inside(app: "App") -> Iterator[Client]:
    """A client whose requests never leave this process."""
    # The client closes its transport.
    with Client(_ADDRESS, transport=_InProcess(app)) as client:
        yield client


class _InProcess(httpx2.BaseTransport):
    """Carries requests to an ASGI application on an event loop of its own."""

    def __init__(self, app: "App") -> None:
        from controlplane.api.app import create_app  # noqa: PLC0415  # heavy, and only for whoever looks after a home
        from controlplane.api.authenticate import Authenticator  # noqa: PLC0415

        self._api = create_app(app, auth=Authenticator(desk=app.desk, is_open=True))
        self._transport = httpx2.ASGITransport(app=self._api)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="api-inside", daemon=True)
        self._thread.start()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return asyncio.run_coroutine_threadsafe(self._ask(request), self._loop).result()

    async def _ask(self, request: httpx2.Request) -> httpx2.Response:
        sent = httpx2.Request(
            request.method,
            request.url,
            headers=request.headers,
            content=request.read(),
            extensions=request.extensions,
        )
        answer = await self._transport.handle_async_request(sent)
        content = await answer.aread()
        return httpx2.Response(answer.status_code, headers=answer.headers, content=content)

    def close(self) -> None:
        self._api.state.followers.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
