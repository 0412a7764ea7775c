"""Trace events about limits: what a job waits for, what its calls are priced at, how its answer was had at the end."""

from typing import Literal

from pydantic import AwareDatetime

from rlm_worker.contracts.base import Event

#: What a parked job waits for: a model's rate limit to pass, or a person's answer.
ParkReason = Literal["rate_limited", "asked"]


class Parked(Event):
    """The attempt ends here without a result: the job waits, holding nothing, and goes on from this trace."""

    kind: Literal["parked"] = "parked"
    reason: ParkReason
    detail: str = ""
    not_before: AwareDatetime | None = None


LimitEvent = Parked
