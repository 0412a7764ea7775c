"""The control plane's gateway on a real HTTP server in this process, with keys to it."""

import asyncio
import socket
import threading
from collections.abc import Iterable
from typing import Any, Self

import uvicorn
from fastapi import FastAPI

from controlplane.api.gateway import open_gateway, router
from controlplane.bootstrap import App
from controlplane.domain.identity import Role, owner
from controlplane.handlers import keys


def a_key(app: App, *, roles: Iterable[Role] = ("worker",), tenant_id: str = "") -> str:
    return keys.issue(app.desk, principal="tester", roles=roles, tenant_id=tenant_id, caller=owner("tester"))[
        1
    ]


class GatewayServer:
    """Serves the gateway of a home on loopback, on a thread."""

    def __init__(self, app: App, *, port: int = 0, **more: Any) -> None:
        self.app = app
        self.service = open_gateway(app)
        api = FastAPI(openapi_url=None)
        api.include_router(router(self.service))
        # The protocol is named, or asyncio does not see that it is TCP and lets answers wait for acknowledgements (40 ms).
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self._socket.listen(1024)
        self.port = self._socket.getsockname()[1]
        config = uvicorn.Config(
            api, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=2, **more
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    def __enter__(self) -> Self:
        # The socket listens already: whoever comes early waits in its queue.
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.service.close()
        self._server.should_exit = True
        self._thread.join(10)
        self._socket.close()
