"""
Errors of the worker, sorted by who sees them.

WorkerError
├─ CallRefused          a host call is not answered: it raises inside the cell, the job goes on
│  ├─ BudgetExceeded    … a limit would be passed
│  ├─ SubcallFailed     … the model gave no answer, or none that fits the type
│  │  └─ NotAsked       … … it could not even be asked: nothing left, nothing is recorded of it
│  └─ BadCall           … the call itself is malformed
├─ TurnDeclined         the model or a filter refused to write this turn: an observation, never asked again as it was
├─ TurnTooLong          the conversation is longer than the model takes, and can start anew
├─ MustPark             the job has to wait for something outside: the attempt ends, holding nothing
├─ JobFailed            the job ends with a failure class
└─ LostAuthority        the lease is gone: write nothing, kill the sandbox, leave
"""  # noqa: D212

from datetime import datetime
from typing import Literal

from rlm_worker.contracts.job import Dimension
from rlm_worker.contracts.limits import ParkReason
from rlm_worker.contracts.result import FailureClass

#: What a job is parked for, or that it is paused.
WaitReason = ParkReason | Literal["paused"]


class WorkerError(Exception):
    """Something the worker could not do."""


class CallRefused(WorkerError):
    """A host call is not answered; the cell sees the reason."""

    #: Name of the exception class that the cell sees.
    guest_error = "HostCallError"


class BadCall(CallRefused):
    """The call's content cannot be used; the message says what would be right."""


class SubcallFailed(CallRefused):
    """A predict() has no usable answer."""

    guest_error = "SubcallError"


class NotAsked(SubcallFailed):
    """A predict() whose model cannot be reached by any request."""


class RequestRefused(CallRefused):
    """A request to the network was not made, or its answer not taken."""

    guest_error = "NetworkRefused"


class BudgetExceeded(CallRefused):
    """A limit would be passed. Nothing was spent on this."""

    guest_error = "BudgetExceeded"

    def __init__(
        self,
        dimension: Dimension,
        *,
        limit: object,
        spent: object,
        detail: str = "",
        of_job: bool = False,
    ) -> None:
        super().__init__(
            f"budget {dimension} is exhausted: limit {limit}, used or held {spent}"
            + (f" ({detail})" if detail else "")
        )
        self.dimension = dimension
        self.limit = limit
        self.spent = spent
        self.detail = detail
        #: Whether it is a limit of the job itself, which somebody can raise, and not of a child.
        self.of_job = of_job


class TurnDeclined(WorkerError):
    """The model that writes the cells, or a filter before it, declined to answer."""


class TurnTooLong(WorkerError):
    """The conversation that asks for this turn does not fit the model, and something can be left out of it."""


class MustPark(WorkerError):
    """The job has to wait: the attempt ends here and another goes on from the record."""

    def __init__(self, reason: WaitReason, detail: str, *, not_before: datetime | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
        self.not_before = not_before


class JobFailed(WorkerError):
    """The job ends here, with its class."""

    def __init__(self, failure_class: FailureClass, message: str) -> None:
        super().__init__(message)
        self.failure_class = failure_class


class LostAuthority(WorkerError):
    """The lease is lost: another attempt may already be at work."""
