"""Trace events by which a job is kept: what its clock said, whose past it shares, what it asked of people."""

from decimal import Decimal
from typing import Literal

from pydantic import JsonValue

from rlm_worker.contracts.base import Count, Event, JsonObject, Name, Sha256


class ClockRead(Event):
    """Times that a cell read, as its sandbox tells them; recorded before what follows from them is answered."""

    kind: Literal["clock_read"] = "clock_read"
    iteration: Count
    read: tuple[Count, ...]


class Diverged(Event):
    """A re-executed cell did not do what the record says."""

    kind: Literal["diverged"] = "diverged"
    iteration: Count
    expected: Sha256
    got: Sha256
    detail: str = ""


class Forked(Event):
    """The first event of a fork: whose past it shares, and up to where. As many events as `inherited` says follow, copied."""

    kind: Literal["forked"] = "forked"
    source_job_id: Name
    #: The last iteration of the source that belongs to the shared past.
    at: Count
    #: Length and head of the source's trace at that point.
    source_events: Count
    source_head: Sha256
    inherited: Count
    #: What the shared past had cost the source; the fork is charged nothing for it.
    iterations: Count = 0
    subcalls: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost_usd: Decimal | None = Decimal(0)


class QuestionAsked(Event):
    """A cell asked a person. The job is parked until there is an answer or the time is up."""

    kind: Literal["question_asked"] = "question_asked"
    iteration: Count
    ordinal: Count
    key: Sha256
    question: str
    answer_schema: JsonObject
    #: When waiting ends; None: never by itself.
    until_ms: Count | None = None


class QuestionAnswered(Event):
    """What a person answered, who and when; or that nobody did in time."""

    kind: Literal["question_answered"] = "question_answered"
    iteration: Count
    ordinal: Count
    key: Sha256
    ok: bool
    value: JsonValue = None
    by: str = ""
    answered_ms: Count = 0
    error: str = ""


KeptEvent = ClockRead | Diverged | Forked | QuestionAsked | QuestionAnswered
