"""Workers: who works, on how much, and who shall take nothing new."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import Response

from controlplane.api.bodies import Page
from controlplane.api.bodies_admin import DrainRequest, WorkerBody
from controlplane.api.calls import Acting, Called, Reply
from controlplane.api.operations import Key, Limit, answers
from controlplane.errors import NotFound
from controlplane.handlers import workers

routes = APIRouter(prefix="/v1/workers", tags=["workers"])
WorkerId = Annotated[str, Path(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")]


@routes.get("", operation_id="list_workers", **answers(200, Page[WorkerBody]))
async def list_workers(call: Called, limit: Limit = 200) -> Response:
    """Those that are there first, then those seen last."""

    def act(acting: Acting) -> Reply:
        found = workers.workers(acting.desk, caller=acting.caller, limit=limit)
        return Reply(body=Page[WorkerBody](items=tuple(WorkerBody(**asdict(view)) for view in found)))

    return await call.read(act)


@routes.post("/{worker_id:path}/drain", operation_id="drain_worker", **answers(200, WorkerBody))
async def drain_worker(
    call: Called, worker_id: WorkerId, body: DrainRequest | None = None, key: Key = None
) -> Response:
    """Have a worker take nothing new, or take up work again; what it works on goes on."""
    undo = body is not None and not body.draining

    def act(acting: Acting) -> Reply:
        workers.drain(acting.desk, worker_id, caller=acting.caller, undo=undo)
        found = workers.workers(acting.desk, caller=acting.caller, limit=1_000)
        view = next((view for view in found if view.worker_id == worker_id), None)
        if view is None:
            raise NotFound(f"there is no worker {worker_id!r}: the list of workers names those that are")
        return Reply(body=WorkerBody(**asdict(view)))

    _ = key
    return await call.write(act)
