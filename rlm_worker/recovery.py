"""What to do about a model call that failed: one table, by the kind of error. Pure."""

from datetime import UTC, datetime, timedelta
from typing import Literal

from rlm_worker.config import WorkerSettings
from rlm_worker.errors import MustPark
from rlm_worker.models.errors import ContextTooLong, Malformed, ModelError, RateLimited, Refused

#: `ask_again`: under a new hold, the old one is charged. `tell`: the refusal is an observation.
#: `roll_over`: the conversation starts anew; `shorten`: what is left when it cannot.
Remedy = Literal["ask_again", "roll_over", "shorten", "tell", "park", "fail"]

#: A provider that names no time is left alone for this long, and never asked sooner than after a second.
_UNKNOWN_WAIT_SECONDS = 60.0
_LEAST_WAIT_SECONDS = 1.0
_DETAIL_CHARACTERS = 500


def remedy(
    error: ModelError, *, tries: int, settings: WorkerSettings, parks: int, can_roll_over: bool = False
) -> Remedy:
    """What follows from an error that waiting in place did not cure. `tries` counts this call's requests with unknown outcome."""
    match error:
        case RateLimited():
            return "park" if parks < settings.parks_in_a_row else "fail"
        case ContextTooLong():
            return "roll_over" if can_roll_over else "shorten"
        case Refused():
            return "tell"
        case Malformed(may_have_spent=True):
            return "ask_again" if tries < 1 else "fail"
        case ModelError(may_retry=True, may_have_spent=True):
            return "ask_again" if tries < settings.retries else "fail"
        case _:
            return "fail"


def parking(error: RateLimited, *, now: datetime | None = None) -> MustPark:
    """The wait that a rate limit asks for."""
    told = error.retry_after_seconds
    seconds = _UNKNOWN_WAIT_SECONDS if told is None else max(told, _LEAST_WAIT_SECONDS)
    at = (now or datetime.now(UTC)) + timedelta(seconds=seconds)
    return MustPark("rate_limited", str(error)[:_DETAIL_CHARACTERS], not_before=at)
