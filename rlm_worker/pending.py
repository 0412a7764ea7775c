"""One predict() whose hold stands, and the events that tell how it began and ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from rlm_worker.calls import Call
from rlm_worker.contracts.trace import Hold, Spend, SubcallFinished, SubcallStarted
from rlm_worker.execution import Execution
from rlm_worker.media import PageOf, media_digest
from rlm_worker.meter import whole
from rlm_worker.models import Completion, Message, Model
from rlm_worker.models.errors import ModelError


@dataclass(frozen=True, kw_only=True)
class Pending:
    """A call whose hold stands."""

    call: Call
    ordinal: int
    hold: Hold
    model: Model
    messages: list[Message]
    repairs: int


def started(at: Execution, pending: Pending) -> SubcallStarted:
    call = pending.call
    # Not validated again: every part was read and checked before it was held, a thousand times a batch.
    return SubcallStarted.made(
        node=at.node,
        iteration=at.iteration,
        ordinal=pending.ordinal,
        key=call.key,
        model=call.model,
        signature=call.signature,
        inputs=call.inputs,
        instructions=call.instructions,
        hold=pending.hold,
        cut_pages=cut_digests(call) if call.attachments else (),
    )


def cut_digests(call: Call) -> tuple[str, ...]:
    """Of the pages among what is sent: what the inputs do not tell."""
    sent = zip(call.attachments, call.media, strict=True)
    return tuple(media_digest(media) for wanted, media in sent if isinstance(wanted, PageOf))


def finished(at: Execution, pending: Pending, *, spend: Spend, **said: Any) -> SubcallFinished:
    return SubcallFinished.made(
        node=at.node,
        iteration=at.iteration,
        ordinal=pending.ordinal,
        key=pending.call.key,
        model=pending.call.model,
        ok="value" in said,
        spend=spend,
        **said,
    )


def failed(at: Execution, pending: Pending, error: ModelError) -> SubcallFinished:
    spend = whole(pending.hold) if error.may_have_spent else Spend()
    return finished(at, pending, error=str(error), error_class=type(error).__name__, spend=spend)


def total(completions: Sequence[Completion]) -> Spend:
    cost: Decimal | None = Decimal(0)
    for completion in completions:
        cost = None if cost is None or completion.cost_usd is None else cost + completion.cost_usd
    return Spend(
        input_tokens=sum(c.usage.input_tokens for c in completions),
        output_tokens=sum(c.usage.output_tokens for c in completions),
        cached_input_tokens=sum(c.usage.cached_input_tokens for c in completions),
        cost_usd=cost,
    )
