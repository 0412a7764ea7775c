"""The HTTP server: who it may listen to, and how it ends. Uvicorn is imported when it is needed."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from controlplane.api.tokens import is_loopback, tokens_of
from controlplane.bootstrap import App
from controlplane.config import Settings
from controlplane.errors import InvalidRequest, Unavailable

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

_BACKLOG = 1_024
_START_SECONDS = 30.0


def is_open_to(host: str, *, settings: Settings, has_credentials: bool, is_unsafe: bool) -> bool:
    """Whether callers without a key are served there as the owner. Refuses what would let anybody in unasked.

    On loopback, embedded: yes, since who reaches it could open the home. Elsewhere only when somebody says so.
    """
    is_embedded = settings.database_url is None and settings.redis_url is None
    if is_loopback(host) and is_embedded:
        return True
    if has_credentials:
        return False
    if is_unsafe:
        return True
    where = f"{host} is not loopback" if is_embedded else "this is not the embedded mode"
    raise InvalidRequest(
        f"the API would be open to everybody: {where}, and nobody has a key. Make one with "
        "`custody keys create`, or set oidc_issuer; --unsafe-no-auth serves everybody as the owner"
    )


def make_api(app: App, *, host: str, is_unsafe: bool = False) -> "FastAPI":
    """The application for a server at this address, as its settings say."""
    from controlplane.api.app import create_app  # noqa: PLC0415
    from controlplane.api.authenticate import Authenticator  # noqa: PLC0415
    from controlplane.api.gate import LOOPBACK  # noqa: PLC0415

    tokens = tokens_of(app.settings)
    with app.store.read() as tx:
        has_credentials = tokens is not None or tx.keys.any_valid()
    is_open = is_open_to(host, settings=app.settings, has_credentials=has_credentials, is_unsafe=is_unsafe)
    auth = Authenticator(desk=app.desk, tokens=tokens, is_open=is_open)
    return create_app(app, auth=auth, hosts=LOOPBACK if is_loopback(host) else None)


def serve(app: App, *, host: str = "127.0.0.1", port: int = 0, is_unsafe: bool = False) -> None:
    """Serve until the process is told to end; then let those who are being answered finish."""
    import asyncio  # noqa: PLC0415

    api = make_api(app, host=host, is_unsafe=is_unsafe)
    with _listening(host, port) as listener:
        asyncio.run(_server(api, app.settings).serve(sockets=[listener]))


@contextmanager
def serving(app: App, *, host: str = "127.0.0.1", port: int = 0, is_unsafe: bool = False) -> Iterator[str]:
    """Serve in a thread of this process; gives the address."""
    import asyncio  # noqa: PLC0415

    api = make_api(app, host=host, is_unsafe=is_unsafe)
    with _listening(host, port) as listener:
        server = _server(api, app.settings)
        thread = threading.Thread(
            target=lambda: asyncio.run(server.serve(sockets=[listener])), name="api", daemon=True
        )
        thread.start()
        if not server.is_up.wait(_START_SECONDS):
            raise Unavailable("the API did not begin to serve: its log says why")
        try:
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, or asyncio does not see that it is TCP, and an answer waits 40 ms for an acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise InvalidRequest(
                f"the API cannot listen at {host}:{port}: {error.strerror}. Choose another with --port"
            ) from error
        listener.listen(_BACKLOG)
        yield listener
    finally:
        listener.close()


def _server(api: "FastAPI", settings: Settings) -> Any:
    import uvicorn  # noqa: PLC0415

    config = uvicorn.Config(
        api,
        http="httptools",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        # Who asks is who connects: what a header says of it is anybody's word.
        proxy_headers=False,
        timeout_graceful_shutdown=int(settings.drain_seconds) or 1,
    )
    return _ending_server()(config)


def _ending_server() -> "type[uvicorn.Server]":
    import uvicorn  # noqa: PLC0415

    from controlplane.api.app import let_go  # noqa: PLC0415

    class EndingServer(uvicorn.Server):
        """Ends streams and long polls first: whoever follows a job would hold the server up for as long as the job goes on."""

        def __init__(self, config: uvicorn.Config) -> None:
            super().__init__(config)
            self.is_up = threading.Event()

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            self.is_up.set()

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            let_go(self.config.app)  # type: ignore[arg-type]
            await super().shutdown(sockets)

    return EndingServer
