"""Trace events about limits: what a job waits for, what its calls are priced at, how its answer was had at the end."""

from typing import Literal

from pydantic import AwareDatetime

from rlm_worker.contracts.base import Count, Event, JsonObject

#: What a parked job waits for: a model's rate limit to pass, or a person's answer.
ParkReason = Literal["rate_limited", "asked"]


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


LimitEvent = Parked | PromptShortened | AnswerExtracted
