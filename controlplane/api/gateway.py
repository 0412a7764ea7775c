"""The gateway over HTTP, as routes: bodies are the contracts that golden files pin, and no part of the OpenAPI document."""

import json
import re
from collections.abc import Awaitable, Callable
from functools import partial

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from controlplane.api.refusals import REFUSALS, refused
from controlplane.api.serving import Credentials, GatewayService, KeyCredentials
from controlplane.api.wire import Body, Refused, answered, encoded, malformed, parsed, read_body, unpacked
from controlplane.bootstrap import App
from controlplane.domain.identity import Caller
from rlm_worker.contracts.base import PROTOCOL_VERSION, Contract
from rlm_worker.contracts.gateway import (
    AwaitOrdersRequest,
    ClaimRequest,
    ParkRequest,
    ReadTraceRequest,
    RecordRequest,
    RenewRequest,
    SettleRequest,
)
from rlm_worker.contracts.remote import (
    GATEWAY_PATH,
    EvidenceRequest,
    FilesRequest,
    HandBackRequest,
    HelloRequest,
    WaitRequest,
)

_DIGEST = re.compile(r"[0-9a-f]{64}")
#: Requests that are not long are read by the event loop itself, whatever they ask.
Endpoint = Callable[[Request], Awaitable[Response]]


def open_gateway(app: App, *, credentials: Credentials | None = None) -> GatewayService:
    """What a server needs once: give its `router` to the application, and `close` it before the server stops."""
    return GatewayService(
        app.desk,
        credentials or KeyCredentials(app.desk),
        request_bytes=min(app.settings.request_bytes, app.settings.max_piece_bytes),
        evidence=app.evidence,
        artifacts=app.settings.artifacts,
    )


def router(service: GatewayService) -> APIRouter:
    """The routes of the gateway, below /v1/gateway."""
    routes = APIRouter(prefix=GATEWAY_PATH, include_in_schema=False)

    def add(path: str, endpoint: Endpoint, method: str = "POST") -> None:
        routes.add_route(f"{GATEWAY_PATH}{path}", endpoint, methods=[method])

    add("/hello", _asked(service, HelloRequest, service.hello, before=_negotiate))
    add("/hand_back", _asked(service, HandBackRequest, service.hand_back))
    add("/claim", _asked(service, ClaimRequest, service.claim))
    add("/renew", _asked(service, RenewRequest, service.renew))
    add("/record", _asked(service, RecordRequest, service.record))
    add("/read_trace", _asked(service, ReadTraceRequest, service.read_trace))
    add("/settle", _asked(service, SettleRequest, service.settle))
    add("/park", _asked(service, ParkRequest, service.park))
    add("/await_orders", _waited(service, AwaitOrdersRequest, service.await_orders))
    add("/wait", _waited(service, WaitRequest, service.wait))
    add("/evidence/{digest}", _asked(service, EvidenceRequest, service.evidence))
    add("/evidence/{digest}/files", _asked(service, FilesRequest, service.files))
    add("/blobs/{digest}", _blob(service), "PUT")
    return routes


def _asked(
    service: GatewayService,
    contract: type[Body],
    act: Callable[[Caller, Body], Contract | bytes],
    *,
    before: Callable[[bytes], None] | None = None,
) -> Endpoint:
    """A request that is answered on a thread, where its body is unpacked and read too."""

    def answer(request: Request, body: bytes) -> Response:
        caller = service.admit(request)
        plain = unpacked(body, request.headers.get("content-encoding", ""), limit=service.request_bytes)
        if before is not None:
            before(plain)
        found = act(caller, parsed(contract, plain))
        accept = request.headers.get("accept-encoding", "")
        if isinstance(found, bytes):
            return answered(found, accept, media_type="application/octet-stream")
        return answered(encoded(found), accept)

    async def act_on(request: Request) -> Response:
        body = await read_body(request, limit=service.request_bytes)
        return await service.in_thread(partial(answer, request, body))

    return _guarded(act_on)


def _waited(
    service: GatewayService,
    contract: type[Body],
    act: Callable[[Caller, Body], Awaitable[Contract]],
) -> Endpoint:
    """A request that waits, and holds no thread meanwhile."""

    async def act_on(request: Request) -> Response:
        body = await read_body(request, limit=service.request_bytes)
        caller = await service.in_thread(partial(service.admit, request))
        return Response(encoded(await act(caller, parsed(contract, body))), media_type="application/json")

    return _guarded(act_on)


def _blob(service: GatewayService) -> Endpoint:
    """A piece of a file that a job made."""

    def answer(request: Request, body: bytes) -> Response:
        caller, asked = service.admit(request), request.query_params
        content = request.path_params["digest"]
        try:
            figures = {name: int(asked[name]) for name in ("fence", "offset", "size")}
            job_id = asked["job_id"]
        except (KeyError, ValueError):
            raise malformed("the address must say job_id, fence, offset and size") from None
        if not _DIGEST.fullmatch(content) or min(figures.values()) < 0:
            raise malformed("a file is named by the SHA-256 of its content, and no figure is below zero")
        return Response(
            encoded(service.keep(caller, job_id, content, body, **figures)), media_type="application/json"
        )

    async def act_on(request: Request) -> Response:
        body = await read_body(request, limit=service.request_bytes)
        return await service.in_thread(partial(answer, request, body))

    return _guarded(act_on)


def _guarded(act_on: Endpoint) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        try:
            return await act_on(request)
        except Refused as refusal:
            return refusal.response(request.url.path)
        except REFUSALS as error:
            return refused(error).response(request.url.path)

    return endpoint


def _negotiate(body: bytes) -> None:
    """Whoever speaks no protocol of ours is told so before anything else of its words is looked at."""
    try:
        said = json.loads(body)
        spoken = tuple(said["protocols"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    if PROTOCOL_VERSION in spoken:
        return
    numbers = [version for version in spoken if isinstance(version, int)]
    is_old = bool(numbers) and max(numbers) < PROTOCOL_VERSION
    raise Refused(
        426,
        "protocol",
        "the worker speaks another protocol",
        f"the worker speaks protocol {', '.join(map(str, numbers)) or 'unknown'}, this server {PROTOCOL_VERSION}",
        "update the worker" if is_old else "update the server, or start a worker of its release",
    )
