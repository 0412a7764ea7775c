"""Orders to jobs: stop, kill, pause, resume, steer, fork, answer; one job at a time, or many."""

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import JsonValue

from controlplane.api import answers as to
from controlplane.api.bodies import JobBody
from controlplane.api.bodies_orders import (
    AnswerRequest,
    BulkAnswer,
    BulkRequest,
    CompleteRequest,
    ForkRequest,
    OrderRequest,
    RetryRequest,
    RetuneRequest,
    SteerAnswer,
    SteerRequest,
)
from controlplane.api.bulk import carry_out
from controlplane.api.calls import Acting, Called, Reply
from controlplane.api.operations import JobId, Key, Match, answers
from controlplane.api.routes_jobs import job_reply, tagged, view_of
from controlplane.domain.commands import Order
from controlplane.handlers import asking, control, forking, parking, queries, retuning, runbook

routes = APIRouter(prefix="/v1", tags=["orders"])
_ORDER = answers(200, JobBody, more=(412,), has_tag=True)


async def _stop(call: Called, job_id: str, order: Order, body: OrderRequest | None) -> Response:
    reason = "" if body is None else body.reason

    def act(acting: Acting) -> Reply:
        control.stop(acting.desk, job_id, order=order, caller=acting.caller, reason=reason)
        return job_reply(acting, job_id, content=False)

    return await call.write(act, job_id=job_id)


@routes.post("/jobs/{job_id}/stop", operation_id="stop_job", **_ORDER)
async def stop_job(
    call: Called, job_id: JobId, body: OrderRequest | None = None, key: Key = None, match: Match = None
) -> Response:
    """Order a job to end, with what it has. One that has ended is left as it is; a second stop is a kill."""
    _ = key, match
    return await _stop(call, job_id, "stop", body)


@routes.post("/jobs/{job_id}/kill", operation_id="kill_job", **_ORDER)
async def kill_job(
    call: Called, job_id: JobId, body: OrderRequest | None = None, key: Key = None, match: Match = None
) -> Response:
    """Order a job to end at once."""
    _ = key, match
    return await _stop(call, job_id, "kill", body)


@routes.post("/jobs/{job_id}/pause", operation_id="pause_job", **_ORDER)
async def pause_job(
    call: Called, job_id: JobId, body: OrderRequest | None = None, key: Key = None, match: Match = None
) -> Response:
    """Order a job to let go of its worker until it is resumed."""
    _ = key, match
    return await _stop(call, job_id, "pause", body)


@routes.post("/jobs/{job_id}/resume", operation_id="resume_job", **_ORDER)
async def resume_job(
    call: Called, job_id: JobId, body: OrderRequest | None = None, key: Key = None, match: Match = None
) -> Response:
    """Make a job ready again that is held or parked, or whose worker is gone."""

    def act(acting: Acting) -> Reply:
        view = queries.job(acting.desk, job_id, caller=acting.caller)
        if view.state == "parked":
            parking.unpark(acting.desk, job_id, caller=acting.caller)
        else:
            control.resume(acting.desk, job_id, caller=acting.caller)
        return job_reply(acting, job_id, content=False)

    _ = key, match, body
    return await call.write(act, job_id=job_id)


@routes.post(
    "/jobs/{job_id}/steer", operation_id="steer_job", **answers(200, SteerAnswer, more=(412,), has_tag=True)
)
async def steer_job(
    call: Called, job_id: JobId, body: SteerRequest, key: Key = None, match: Match = None
) -> Response:
    """Leave an instruction for the next iteration."""

    def act(acting: Acting) -> Reply:
        steer_id = control.steer(acting.desk, job_id, text=body.text, caller=acting.caller)
        headers = tagged(acting, job_id)
        item = to.job_item(view_of(acting, job_id, content=False), content=False)
        return Reply(body=SteerAnswer(steer_id=steer_id, job=item), headers=headers)

    _ = key, match
    return await call.write(act, job_id=job_id)


@routes.post(
    "/jobs/{job_id}/fork", operation_id="fork_job", **answers(201, JobBody, more=(412,), has_tag=True)
)
async def fork_job(
    call: Called, job_id: JobId, body: ForkRequest | None = None, key: Key = None, match: Match = None
) -> Response:
    """Make a new job that shares the first iterations of this one."""
    wanted = body or ForkRequest()

    def act(acting: Acting) -> Reply:
        made = forking.fork(
            acting.desk,
            job_id,
            at=wanted.at,
            steer=wanted.steer,
            budget=wanted.budget,
            caller=acting.caller,
        )
        return job_reply(acting, made, content=False, status=201)

    _ = key, match
    return await call.write(act, job_id=job_id)


@routes.post("/jobs/{job_id}/answer", operation_id="answer_job", **_ORDER)
async def answer_job(
    call: Called, job_id: JobId, body: AnswerRequest, key: Key = None, match: Match = None
) -> Response:
    """Answer what a job asks; it goes on with the answer."""

    def act(acting: Acting) -> Reply:
        asking.answer(acting.desk, job_id, question=body.question, value=body.value, caller=acting.caller)
        return job_reply(acting, job_id, content=False)

    _ = key, match
    return await call.write(act, job_id=job_id)


@routes.post("/jobs/{job_id}/retune", operation_id="retune_job", **_ORDER)
async def retune_job(
    call: Called, job_id: JobId, body: RetuneRequest, key: Key = None, match: Match = None
) -> Response:
    """Change limits of a job that has not ended; it works under them at once."""

    def act(acting: Acting) -> Reply:
        changes: dict[str, JsonValue] = dict(body.budget)
        retuning.retune(acting.desk, job_id, changes, reason=body.reason, caller=acting.caller)
        return job_reply(acting, job_id, content=False)

    _ = key, match
    return await call.write(act, job_id=job_id)


@routes.post("/jobs/{job_id}/retry", operation_id="retry_job", **_ORDER)
async def retry_job(
    call: Called, job_id: JobId, body: RetryRequest, key: Key = None, match: Match = None
) -> Response:
    """Try a job anew that failed or was quarantined, from its record."""

    def act(acting: Acting) -> Reply:
        runbook.retry(acting.desk, job_id, reason=body.reason, caller=acting.caller)
        return job_reply(acting, job_id, content=False)

    _ = key, match
    return await call.write(act, job_id=job_id)


@routes.post("/jobs/{job_id}/complete", operation_id="complete_job", **_ORDER)
async def complete_job(
    call: Called, job_id: JobId, body: CompleteRequest, key: Key = None, match: Match = None
) -> Response:
    """Give the answer of a job by hand."""

    def act(acting: Acting) -> Reply:
        runbook.complete(acting.desk, job_id, body.output, reason=body.reason, caller=acting.caller)
        return job_reply(acting, job_id, content=False)

    _ = key, match
    return await call.write(act, job_id=job_id)


@routes.post("/jobs:bulk", operation_id="order_jobs", **answers(200, BulkAnswer, more=(412,)))
async def order_jobs(call: Called, body: BulkRequest, key: Key = None) -> Response:
    """Give one order to many jobs, by their ids or by a filter. Look with `dry_run` first: a filter wants the number it fits."""
    _ = key
    return await call.write(lambda acting: Reply(body=carry_out(acting, body)))
