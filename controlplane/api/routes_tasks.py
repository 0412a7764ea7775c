"""Tasks: what people want to know, with the proofs of what was done for it."""

import json
from functools import partial

from fastapi import APIRouter
from fastapi.responses import Response

from controlplane.api import answers as to
from controlplane.api.bodies import Page, TaskBody, TaskItem
from controlplane.api.calls import Acting, Called, Reply
from controlplane.api.cursors import cursor, text_place
from controlplane.api.operations import Content, Cursor, Limit, TaskId, answers
from controlplane.errors import BadCursor
from controlplane.handlers import contents, queries

routes = APIRouter(prefix="/v1/tasks", tags=["tasks"])


@routes.get("", operation_id="list_tasks", **answers(200, Page[TaskItem]))
async def list_tasks(
    call: Called, limit: Limit = 50, cursor: Cursor = None, *, content: Content = False
) -> Response:
    """Tasks, the newest first."""
    return await call.read(partial(_page, limit=limit, after=cursor, content=content))


def _page(acting: Acting, *, limit: int, after: str | None, content: bool) -> Reply:
    if content:
        contents.allow(acting.desk, caller=acting.caller)
    found = queries.tasks(acting.desk, caller=acting.caller, limit=limit + 1, before=_place(after))
    items = tuple(to.task_item(view, content=content) for _, view in found[:limit])
    more = None
    if len(found) > limit:
        more = cursor("tasks", json.dumps([found[limit - 1][0], items[-1].task_id]))
    return Reply(body=Page[TaskItem](items=items, next=more))


def _place(after: str | None) -> tuple[int, str] | None:
    place = text_place("tasks", after)
    if not place:
        return None
    try:
        created_ms, task_id = json.loads(place)
    except (ValueError, TypeError, RecursionError):
        raise BadCursor("this cursor is of no answer to this list") from None
    if not isinstance(created_ms, int) or not 0 <= created_ms < 2**53 or not isinstance(task_id, str):
        raise BadCursor("this cursor is of no answer to this list")
    return int(created_ms), task_id


@routes.get("/{task_id}", operation_id="get_task", **answers(200, TaskBody))
async def get_task(call: Called, task_id: TaskId, *, content: Content = False) -> Response:
    """One task with its jobs and its receipts."""

    def act(acting: Acting) -> Reply:
        view = queries.task(acting.desk, task_id, caller=acting.caller)
        if content:
            contents.allow(acting.desk, caller=acting.caller, tenant_id=view.tenant_id)
        return Reply(body=to.task(view, content=content))

    return await call.read(act)
