"""What every event of a trace is made of, and the events by which a job is kept: its clock, its past, its questions to people."""

from decimal import ROUND_CEILING, Decimal
from typing import Annotated, Literal

from pydantic import AfterValidator, JsonValue

from rlm_worker.contracts.base import Contract, Count, JsonObject, Name, Sha256

GENESIS = "0" * 64

_NANO = Decimal("1e-9")


def _whole_nanos(cost: Decimal) -> Decimal:
    """Rounded up, so that the worker and the control plane add up the same figures."""
    rounded = cost.quantize(_NANO, rounding=ROUND_CEILING)
    return cost if rounded == cost else rounded


#: Dollars, in whole nano-dollars.
Usd = Annotated[Decimal, AfterValidator(_whole_nanos)]


class Hold(Contract):
    """What a call may cost at most, set aside before it leaves."""

    subcalls: Count = 0
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost_usd: Usd | None = Decimal(0)


class Spend(Contract):
    """What a call did cost."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_input_tokens: Count = 0
    cost_usd: Usd | None = Decimal(0)


class Event(Contract):
    """One act. `node` names the REPL it belongs to: empty for the job's own, a child's id below an rlm_query."""

    node: str = ""


class ClockRead(Event):
    """Times that a cell read, as its sandbox tells them; recorded before what follows from them is answered."""

    kind: Literal["clock_read"] = "clock_read"
    iteration: Count
    read: tuple[Count, ...]


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
    cost_usd: Usd | None = Decimal(0)


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
