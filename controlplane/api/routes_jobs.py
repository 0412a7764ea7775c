"""Jobs: submitted, listed, looked at."""

from dataclasses import replace as replaced
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response
from pydantic import AwareDatetime

from controlplane.api import answers as to
from controlplane.api.bodies import (
    AttemptBody,
    Id,
    JobBody,
    JobFilter,
    JobItem,
    Label,
    LabelPair,
    Page,
    QuestionBody,
    ReceiptBody,
    ResultBody,
    SubmitRequest,
    TraceItem,
    Words,
)
from controlplane.api.calls import Acting, Called, Reply
from controlplane.api.cursors import cursor, number_place
from controlplane.api.operations import Content, Cursor, JobId, Key, Limit, answers
from controlplane.api.submitting import request_of
from controlplane.handlers import attempts, contents, guards, queries, searching, submit
from controlplane.views import JobStateName, JobView

routes = APIRouter(prefix="/v1/jobs", tags=["jobs"])


def filter_of(
    state: Annotated[
        list[JobStateName], Query(max_length=20, description="Only jobs in one of these states.")
    ] = [],  # noqa: B006 - the framework copies it
    task: Annotated[Id | None, Query(description="Only jobs of this task.")] = None,
    label: Annotated[
        list[LabelPair], Query(max_length=10, description="Only jobs with this label: NAME=VALUE.")
    ] = [],  # noqa: B006 - the framework copies it
    model: Annotated[Label | None, Query(description="Only jobs that use this model.")] = None,
    words: Annotated[Words, Query(description="Only jobs whose question has all of these words.")] = "",
    created_after: Annotated[AwareDatetime | None, Query()] = None,
    created_before: Annotated[AwareDatetime | None, Query()] = None,
) -> JobFilter:
    """The conditions of a list of jobs."""
    return JobFilter(
        states=tuple(state),
        task_id=task,
        labels=tuple(label),
        model=model,
        words=words,
        created_after=created_after,
        created_before=created_before,
    )


def view_of(acting: Acting, job_id: str, *, content: bool) -> JobView:
    """A job, with the right to see its texts when they are asked for."""
    view = queries.job(acting.desk, job_id, caller=acting.caller)
    if content:
        contents.allow(acting.desk, caller=acting.caller, tenant_id=view.tenant_id, job_id=job_id)
    return view


def tagged(acting: Acting, job_id: str) -> dict[str, str]:
    with acting.desk.store.read() as tx:
        return {"ETag": f'"{guards.tag_of(tx, job_id, caller=acting.caller)}"'}


def job_reply(acting: Acting, job_id: str, *, content: bool, status: int = 200) -> Reply:
    """A job as it stands. The tag is read first: it may be older than the job, and never newer."""
    headers = tagged(acting, job_id)
    view = view_of(acting, job_id, content=content)
    return Reply(body=to.job(view, content=content), status=status, headers=headers)


@routes.post("", operation_id="submit_job", **answers(201, JobBody, has_tag=True))
async def submit_job(
    call: Called, body: SubmitRequest, key: Key = None, *, content: Content = False
) -> Response:
    """Submit a job. With an Idempotency-Key a repeated submit makes no second one."""

    def act(acting: Acting) -> Reply:
        if content:
            contents.allow(acting.desk, caller=acting.caller, tenant_id=body.tenant_id)
        request = replaced(
            request_of(acting, body), job_id=call.own_id("job", acting), traceparent=call.traceparent()
        )
        job_id = submit.submit(acting.desk, request, caller=acting.caller)
        return job_reply(acting, job_id, content=content, status=201)

    _ = key
    return await call.write(act)


@routes.get("", operation_id="list_jobs", **answers(200, Page[JobItem]))
async def list_jobs(
    call: Called,
    wanted: Annotated[JobFilter, Depends(filter_of)],
    limit: Limit = 50,
    cursor: Cursor = None,
    *,
    content: Content = False,
) -> Response:
    """Jobs that fit everything that is said, the newest first. A page may be short although there is a next one."""
    return await call.read(partial(_page, limit=limit, after=cursor, wanted=wanted, content=content))


def _page(acting: Acting, *, limit: int, after: str | None, wanted: JobFilter, content: bool) -> Reply:
    if content:
        contents.allow(acting.desk, caller=acting.caller)
    found = searching.search(acting.desk, to.search(wanted), caller=acting.caller, limit=limit, cursor=after)
    items = tuple(to.job_item(view, content=content) for view in found.items)
    return Reply(body=Page[JobItem](items=items, next=found.next))


@routes.get("/{job_id}", operation_id="get_job", **answers(200, JobBody, has_tag=True))
async def get_job(call: Called, job_id: JobId, *, content: Content = False) -> Response:
    """One job as it stands; its ETag changes with every decision about it, and not while it only records."""
    return await call.read(partial(job_reply, job_id=job_id, content=content))


@routes.get("/{job_id}/attempts", operation_id="list_attempts", **answers(200, Page[AttemptBody]))
async def list_attempts(call: Called, job_id: JobId) -> Response:
    """The leases of a job, the first one first."""

    def act(acting: Acting) -> Reply:
        found = attempts.of(acting.desk, job_id, caller=acting.caller)
        return Reply(body=Page[AttemptBody](items=tuple(to.attempt(row) for row in found)))

    return await call.read(act)


@routes.get("/{job_id}/trace", operation_id="read_trace", **answers(200, Page[TraceItem]))
async def read_trace(
    call: Called, job_id: JobId, limit: Limit = 100, cursor: Cursor = None, *, content: Content = False
) -> Response:
    """Events of a job's trace in their order. At the end of a job that goes on, `next` leads to what is to come."""
    return await call.read(partial(_trace, job_id=job_id, limit=limit, after=cursor, content=content))


def _trace(acting: Acting, *, job_id: str, limit: int, after: str | None, content: bool) -> Reply:
    of = f"trace {job_id}"
    first = number_place(of, after) or 0
    view = view_of(acting, job_id, content=content)
    found = queries.trace(acting.desk, job_id, caller=acting.caller, after=first, limit=limit)
    items = tuple(to.trace_item(record, content=content) for record in found)
    end = first + len(items)
    is_over = view.is_terminal and end >= view.trace_events
    return Reply(body=Page[TraceItem](items=items, next=None if is_over else cursor(of, end)))


@routes.get("/{job_id}/result", operation_id="get_result", **answers(200, ResultBody))
async def get_result(call: Called, job_id: JobId, *, content: Content = False) -> Response:
    """How a job ended; without a result as long as it has not."""

    def act(acting: Acting) -> Reply:
        return Reply(body=to.result(view_of(acting, job_id, content=content), content=content))

    return await call.read(act)


@routes.get("/{job_id}/questions", operation_id="list_questions", **answers(200, Page[QuestionBody]))
async def list_questions(call: Called, job_id: JobId, *, content: Content = False) -> Response:
    """What a job wants to know of a person."""

    def act(acting: Acting) -> Reply:
        view_of(acting, job_id, content=content)
        found = queries.questions(acting.desk, job_id, caller=acting.caller)
        items = tuple(to.question(view, content=content) for view in found)
        return Reply(body=Page[QuestionBody](items=items))

    return await call.read(act)


@routes.get("/{job_id}/receipts", operation_id="list_receipts", **answers(200, Page[ReceiptBody]))
async def list_receipts(call: Called, job_id: JobId, *, content: Content = False) -> Response:
    """Proofs of what was decided about a job."""

    def act(acting: Acting) -> Reply:
        view = view_of(acting, job_id, content=content)
        task = queries.task(acting.desk, view.task_id, caller=acting.caller)
        own = [proof for proof in task.receipts if proof.body.get("job_id") == job_id]
        return Reply(body=Page[ReceiptBody](items=to.receipts(own, content=content)))

    return await call.read(act)
