"""Bodies of the API for orders to jobs, one at a time or many."""

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from controlplane.api.bodies import (
    MOST,
    Answer,
    Id,
    JobFilter,
    JobItem,
    Label,
    Problem,
    Reason,
    Request,
    Whole,
)
from controlplane.views import JobStateName
from rlm_worker.contracts import Budget, JsonObject


class OrderRequest(Request):
    """Why a job is to stop, die, pause or go on."""

    reason: Reason = ""


class SteerRequest(Request):
    text: Annotated[str, Field(min_length=1, max_length=10_000)]


class SteerAnswer(Answer):
    #: What the worker acknowledges in the trace.
    steer_id: int
    job: JobItem


class RetuneRequest(Request):
    """New limits of a job that has not ended, by the names of a Budget; what is left out stays."""

    budget: Annotated[dict[Label, int | float | str | None], Field(min_length=1, max_length=20)]
    reason: Annotated[str, Field(min_length=1, max_length=1_000)]


class RetryRequest(Request):
    """Why a job that failed, or was quarantined, is tried anew."""

    reason: Annotated[str, Field(min_length=1, max_length=1_000)]


class CompleteRequest(Request):
    """An answer by hand; it must fit the job's schema, and is labelled as an operator's."""

    output: JsonObject
    reason: Annotated[str, Field(min_length=1, max_length=1_000)]


class ForkRequest(Request):
    """A new job that shares the first iterations of another."""

    #: The last iteration that is shared; all finished ones when it is left out.
    at: Annotated[int, Field(gt=0, le=MOST)] | None = None
    steer: Annotated[str, Field(max_length=10_000)] = ""
    budget: Budget | None = None


class AnswerRequest(Request):
    """An answer to what a job asks."""

    #: May be left out when it asks one thing only.
    question: Whole | None = None
    value: JsonValue


class BulkRequest(Request):
    """One order to many jobs, by their ids or by a filter."""

    verb: Literal["stop", "kill", "pause", "resume", "steer"]
    ids: Annotated[tuple[Id, ...], Field(min_length=1, max_length=1_000)] | None = None
    filter: JobFilter | None = None
    #: With a filter: how many jobs it must fit, as a dry run told; another number is refused.
    expect: Annotated[int, Field(ge=0, le=1_000)] | None = None
    dry_run: bool = False
    reason: Reason = ""
    #: What a steer says.
    text: Annotated[str, Field(max_length=10_000)] = ""


class BulkOutcome(Answer):
    """What became of one job."""

    job_id: str
    #: `would`: of a dry run. `unchanged`: it has ended, or a stronger order is in force.
    outcome: Literal["done", "would", "unchanged", "refused"]
    state: JobStateName | None = None
    problem: Problem | None = None


class BulkAnswer(Answer):
    dry_run: bool
    matched: int
    items: tuple[BulkOutcome, ...]
