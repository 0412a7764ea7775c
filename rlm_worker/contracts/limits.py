"""Trace events about limits: what a job waits for, what its calls are priced at, how its answer was had at the end."""

from decimal import Decimal
from typing import Literal

from pydantic import AwareDatetime

from rlm_worker.contracts.base import Count, Event, JsonObject, Positive
from rlm_worker.contracts.job import Budget

#: What a parked job waits for: a model's rate limit to pass, a person's answer, or a higher limit.
ParkReason = Literal["rate_limited", "asked", "budget"]


class Parked(Event):
    """The attempt ends here without a result: the job waits, holding nothing, and goes on from this trace."""

    kind: Literal["parked"] = "parked"
    reason: ParkReason
    detail: str = ""
    not_before: AwareDatetime | None = None


class PromptShortened(Event):
    """A prompt did not fit the model's context: older observations were left out and it was asked again, once."""

    kind: Literal["prompt_shortened"] = "prompt_shortened"
    iteration: Count
    characters: Count
    kept_characters: Count


class AnswerExtracted(Event):
    """Nobody submitted and there was no draft: the answer was read out of the history by one typed call, and checked."""

    kind: Literal["answer_extracted"] = "answer_extracted"
    iteration: Count
    fields: JsonObject


class ModelPriced(Event):
    """What a model is charged by in this attempt, written before its first hold: dollars per million tokens."""

    kind: Literal["model_priced"] = "model_priced"
    model: str
    source: Literal["free", "set_by_hand", "genai-prices", "unknown"]
    version: str = ""
    provider: str = ""
    listed_as: str = ""
    input_usd: Decimal | None = None
    output_usd: Decimal | None = None
    cached_input_usd: Decimal | None = None
    #: The whole row of the list, with tiers.
    row: str = ""


class Retuned(Event):
    """The limits of the job were changed from outside; from here on it works under these."""

    kind: Literal["retuned"] = "retuned"
    #: Grows with each change.
    version: Positive
    budget: Budget
    by: str = ""
    reason: str = ""


LimitEvent = ModelPriced | Parked | PromptShortened | AnswerExtracted | Retuned
