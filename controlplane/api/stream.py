"""A job as it goes on, as server-sent events: its trace, its states, and its end. Read page by page, as fast as the caller takes it."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import Response
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from controlplane.api import answers as to
from controlplane.api.calls import Acting, Call, Called
from controlplane.api.followers import Followers
from controlplane.api.operations import Content, JobId, answers
from controlplane.api.problems import Unauthenticated
from controlplane.errors import ControlPlaneError
from controlplane.handlers import contents, following, queries
from controlplane.handlers.following import Standing

routes = APIRouter(prefix="/v1/jobs", tags=["jobs"])

#: Without news, a line that says that the connection lives.
HEARTBEAT_SECONDS = 15.0
#: Who does not take what is sent for so long is dropped: it comes back with Last-Event-ID.
_SLOW_SECONDS = 30.0
_PAGE = 200
#: A key that is revoked ends the streams that were opened with it within this time.
_ASK_AGAIN_SECONDS = 1.0
_STREAM = answers(200, None)
_STREAM["responses"][200] |= {
    "description": "Events `trace` (with their number as id), `state` and, at last, `end`.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}
_LAST = r"^[0-9]{1,15}$"


class EventStream(Response):
    """Sends as long as the caller takes it."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _ = scope
        gone = asyncio.create_task(_gone(receive))
        sending = asyncio.create_task(self._send(send))
        try:
            await asyncio.wait({gone, sending}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (gone, sending):
                task.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for chunk in self._events:
            async with asyncio.timeout(_SLOW_SECONDS):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@routes.get(
    "/{job_id}/stream",
    operation_id="follow_job",
    response_class=EventStream,
    **{**_STREAM, "response_model": None},
)
async def follow_job(
    call: Called,
    job_id: JobId,
    last: Annotated[
        str | None,
        Header(alias="Last-Event-ID", pattern=_LAST, description="Go on after this event of the trace."),
    ] = None,
    after: Annotated[
        int | None, Query(ge=0, lt=2**53, description="Begin with this event of the trace.")
    ] = None,
    *,
    content: Content = False,
) -> Response:
    """Follow a job until it has ended. Whoever is cut off goes on with `Last-Event-ID`."""
    first = int(last) + 1 if last is not None else after or 0
    acting, standing = await call.run(partial(_begin, job_id=job_id, content=content))
    reader = _Reader(call, acting, job_id, content=content)
    return EventStream(_events(reader, call.request.app.state.followers, standing, first=first))


def _begin(acting: Acting, *, job_id: str, content: bool) -> tuple[Acting, Standing]:
    """Look once before the answer begins, so that a refusal is an answer of its own."""
    standing = following.look(acting.desk, job_id, caller=acting.caller)
    if content:
        contents.allow(acting.desk, caller=acting.caller, tenant_id=standing.tenant_id, job_id=job_id)
    return acting, standing


class _Reader:
    """Reads for one follower, as whoever it is at that time."""

    def __init__(self, call: Call, acting: Acting, job_id: str, *, content: bool) -> None:
        self._call = call
        self._acting = acting
        self._job_id = job_id
        self._content = content
        self._asked = time.monotonic()

    async def look(self) -> Standing:
        return await self._call.kernel.pool.run(self._look)

    def _look(self) -> Standing:
        if time.monotonic() - self._asked > _ASK_AGAIN_SECONDS:
            header = self._call.request.headers.get("Authorization")
            self._acting = replace(self._acting, caller=self._call.kernel.auth.caller(header))
            self._asked = time.monotonic()
        return _begin(self._acting, job_id=self._job_id, content=self._content)[1]

    async def page(self, first: int) -> list[bytes]:
        return await self._call.kernel.pool.run(partial(self._page, first))

    def _page(self, first: int) -> list[bytes]:
        acting = self._acting
        found = queries.trace(acting.desk, self._job_id, caller=acting.caller, after=first, limit=_PAGE)
        return [
            _event("trace", to.trace_item(record, content=self._content), number=record.seq)
            for record in found
        ]

    async def state(self, name: str) -> bytes:
        return await self._call.kernel.pool.run(partial(self._state, name))

    def _state(self, name: str) -> bytes:
        view = queries.job(self._acting.desk, self._job_id, caller=self._acting.caller)
        return _event(name, to.job_item(view, content=self._content))


def _event(name: str, body: BaseModel, *, number: int | None = None) -> bytes:
    lines = [f"id: {number}"] if number is not None else []
    return "\n".join([*lines, f"event: {name}", f"data: {body.model_dump_json()}", "", ""]).encode()


async def _events(
    reader: _Reader, followers: Followers, standing: Standing, *, first: int
) -> AsyncIterator[bytes]:
    told = -1
    try:
        while True:
            ticket = followers.ticket()
            try:
                standing = await reader.look()
                while first < standing.trace_events and (page := await reader.page(first)):
                    first += len(page)
                    yield b"".join(page)
                if standing.is_terminal:
                    yield await reader.state("end")
                    return
                if standing.version != told:
                    told = standing.version
                    yield await reader.state("state")
                if followers.is_closed:
                    return
                if not await ticket.wait(seconds=HEARTBEAT_SECONDS):
                    yield b": nothing new\n\n"
            finally:
                followers.drop(ticket)
    except (ControlPlaneError, Unauthenticated):
        # What was true when it began is no longer: whoever comes back is told what.
        return
