"""The factory of the HTTP API: an App and a way to know callers become an ASGI application. OpenAPI is its contract."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from controlplane.api import (
    gateway,
    problems,
    routes_control,
    routes_files,
    routes_health,
    routes_identity,
    routes_jobs,
    routes_limits,
    routes_orders,
    routes_tasks,
    routes_workers,
    stream,
)
from controlplane.api.authenticate import Authenticator
from controlplane.api.bodies import Problem
from controlplane.api.calls import Kernel
from controlplane.api.followers import Followers
from controlplane.api.gate import LOOPBACK, Gate
from controlplane.api.pool import Pool
from controlplane.api.rates import Rates
from controlplane.bootstrap import App

_ROUTERS = (
    routes_jobs.routes,
    stream.routes,
    routes_orders.routes,
    routes_tasks.routes,
    routes_files.routes,
    routes_identity.routes,
    routes_limits.routes,
    routes_control.routes,
    routes_workers.routes,
    routes_health.routes,
)
#: Operations that nobody has to say who they are for.
_OPEN = frozenset({"is_alive", "is_ready", "get_version"})


def create_app(app: App, *, auth: Authenticator, hosts: Iterable[str] | None = LOOPBACK) -> FastAPI:
    """An ASGI application over an App. It owns threads, and ends them with its lifespan; the App stays its owner's.

    `hosts`: the names under which callers without a key may ask.
    """
    settings = app.settings
    api = FastAPI(
        title="Custody",
        version=version("custody"),
        summary="Recursive language-model reasoning over evidence, kept in custody.",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        redirect_slashes=False,
    )
    kernel = Kernel(
        app=app,
        auth=auth,
        pool=Pool(threads=settings.api_threads, waiting=settings.api_waiting),
        rates=Rates(per_second=settings.api_rate, burst=settings.api_burst),
    )
    api.state.kernel = kernel
    api.state.followers = Followers(app.store)
    api.state.checks = {"store": routes_health.store_check(kernel)}
    if settings.redis_url is not None:
        api.state.checks["queue"] = routes_health.queue_check(settings.redis_url)
    # Workers of other machines: with a key of theirs, also where people need none.
    service = gateway.open_gateway(app)
    api.include_router(gateway.router(service))
    api.state.closing = (api.state.followers.close, service.close)
    for router in _ROUTERS:
        api.include_router(router)
    problems.install(api)
    api.add_middleware(
        Gate,
        max_body_bytes=settings.max_body_bytes,
        max_piece_bytes=settings.max_piece_bytes,
        is_open=auth.is_open,
        hosts=hosts,
    )
    # Around everything else, also around what the framework does with errors that it does not know.
    api.add_middleware(_Defects)
    _describe(api)
    return api


@asynccontextmanager
async def _lifespan(api: FastAPI) -> AsyncIterator[None]:
    yield
    let_go(api)


def let_go(api: FastAPI) -> None:
    """Answer everybody who waits for something to happen; a second time does nothing."""
    for close in api.state.closing:
        close()


class _Defects:
    """What nobody expected is an answer with an id, and the rest is in the log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def note(message: Any) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, note)
        except Exception as error:
            answer = problems.answer_to(error, instance=scope.get("path", ""))
            if begun or scope["type"] != "http":
                raise
            await answer(scope, receive, send)


def _describe(api: FastAPI) -> None:
    """The document, with what the framework cannot know: who has to say who they are, and how problems look."""
    made = api.openapi

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is not None:
            return api.openapi_schema
        document = made()
        components = document.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas["Problem"] = schema
        components["securitySchemes"] = {
            "bearer": {
                "type": "http",
                "scheme": "bearer",
                "description": "A key of the API (`cst_…`), or a token (JWT) of the installation's issuer.",
            }
        }
        for path in document["paths"].values():
            for operation in path.values():
                if operation["operationId"] not in _OPEN:
                    operation["security"] = [{"bearer": []}]
        return document

    api.openapi = openapi  # type: ignore[method-assign]
