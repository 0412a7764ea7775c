"""Whether the server lives, whether it can work, and what it is. Nobody has to say who they are for it."""

import time
from collections.abc import Callable
from importlib.metadata import version

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from controlplane.api.bodies_admin import HealthBody, VersionBody
from controlplane.api.calls import Kernel
from controlplane.api.operations import answers
from controlplane.errors import ControlPlaneError
from rlm_worker.contracts import PROTOCOL_VERSION

routes = APIRouter(tags=["health"])
#: Leases are granted on the clock of the database; a server that is further from it shows times that nobody understands.
_MOST_SKEW_MS = 2_000
_QUEUE_SECONDS = 1.0

Check = Callable[[], str]


@routes.get("/healthz", operation_id="is_alive", **answers(200, HealthBody))
async def is_alive() -> Response:
    """Whether the process answers at all."""
    return JSONResponse(HealthBody(status="ok").model_dump())


@routes.get("/readyz", operation_id="is_ready", **answers(200, HealthBody))
async def is_ready(request: Request) -> Response:
    """Whether it can work: its store, its queue, its clock."""
    kernel: Kernel = request.app.state.kernel
    checks: dict[str, Check] = request.app.state.checks
    found = await kernel.pool.run(lambda: {name: _looked(check) for name, check in checks.items()})
    is_fine = all(said == "ok" for said in found.values())
    body = HealthBody(status="ok" if is_fine else "failing", checks=found)
    headers = {} if is_fine else {"Retry-After": "1"}
    return JSONResponse(body.model_dump(), status_code=200 if is_fine else 503, headers=headers)


def _looked(check: Check) -> str:
    try:
        return check()
    except ControlPlaneError as error:
        return str(error)


def store_check(kernel: Kernel) -> Check:
    """Reads the clock of the store: its schema was checked when it was opened."""

    def check() -> str:
        before = time.time() * 1000
        with kernel.app.store.read() as tx:
            there = tx.now_ms
        skew = max(before - there, there - time.time() * 1000, 0)
        if skew > _MOST_SKEW_MS:
            return f"the clocks of this machine and of the database differ by {skew / 1000:.1f} seconds"
        return "ok"

    return check


def queue_check(url: str) -> Check:
    """Asks the queue whether it is there. Without it work goes on: wake-ups wait, and are sent again."""

    def check() -> str:
        import redis  # noqa: PLC0415

        try:
            with redis.Redis.from_url(
                url, socket_timeout=_QUEUE_SECONDS, socket_connect_timeout=_QUEUE_SECONDS
            ) as queue:
                queue.ping()
        except redis.RedisError as error:
            return f"the queue does not answer ({type(error).__name__}): see to the server of redis_url"
        return "ok"

    return check


@routes.get("/v1/version", operation_id="get_version", **answers(200, VersionBody))
async def get_version() -> Response:
    """Which release this is."""
    return JSONResponse(VersionBody(version=version("custody"), protocol=PROTOCOL_VERSION).model_dump())
