"""
What a server said no with, as the errors of the control plane: whoever catches these need not know that there is a server.

ClientError
├─ BadRequest     (InvalidRequest)   400, 413, 415, 422: the request must change
├─ Missing        (NotFound)         404, 410: nothing of that name, or not of yours
├─ Forbidden      (Denied)           401, 403: another key, or a permission
├─ OverLimit      (OverBudget)       402 and what is called over_budget: ask for less
├─ Conflict       (Stale)            409, 412, 428: somebody moved on; read again, then decide
├─ Damaged        (Tampered)         what came is not what was promised
├─ Busy           (Unavailable)      429, 503: later, at the time it says
├─ Unreachable    (Unavailable)      no answer came
└─ ServerFailed   (Unavailable)      5xx, or an answer that no Custody gives
"""  # noqa: D212

from controlplane.api.bodies import Problem
from controlplane.errors import (
    ControlPlaneError,
    Denied,
    InvalidRequest,
    NotFound,
    OverBudget,
    Stale,
    Tampered,
    Unavailable,
)


class ClientError(ControlPlaneError):
    """The server did not do what was asked."""

    #: What the server said of it; None when it said nothing.
    problem: Problem | None = None
    #: Seconds after which to ask again, where the server named them.
    retry_after: float | None = None


class BadRequest(ClientError, InvalidRequest):
    """The request is malformed or contradicts itself."""


class Missing(ClientError, NotFound):
    """Nothing of that name is there for this caller."""


class Forbidden(ClientError, Denied):
    """The caller may not do this."""


class OverLimit(ClientError, OverBudget):
    """A limit would be passed."""


class Conflict(ClientError, Stale):
    """Someone else moved on in the meantime."""


class Damaged(ClientError, Tampered):
    """What came is not what was promised."""


class Busy(ClientError, Unavailable):
    """The server asks to come again later."""


class Unreachable(ClientError, Unavailable):
    """No answer came."""

    #: False when the request cannot have reached anybody.
    was_sent: bool = True


class ServerFailed(ClientError, Unavailable):
    """The server failed, or is no Custody."""


_BY_STATUS: dict[int, type[ClientError]] = {
    400: BadRequest,
    401: Forbidden,
    402: OverLimit,
    403: Forbidden,
    404: Missing,
    409: Conflict,
    410: Missing,
    412: Conflict,
    428: Conflict,
    429: Busy,
    503: Busy,
}
_BY_CODE: dict[str, type[ClientError]] = {"over_budget": OverLimit, "tampered": Damaged}


def error_of(status: int, problem: Problem) -> ClientError:
    """The error that an answer stands for, with what happened and what to do next in its message."""
    usual = BadRequest if status < 500 else ServerFailed
    error = _BY_CODE.get(problem.code, _BY_STATUS.get(status, usual))(_words(problem))
    error.problem = problem
    return error


def _words(problem: Problem) -> str:
    said = [problem.detail or problem.title]
    said += [f"{misfit.where}: {misfit.what}" for misfit in problem.errors if misfit.what not in said[0]]
    if problem.hint and problem.hint not in said[0]:
        said.append(problem.hint)
    if problem.error_id:
        said.append(f"the server's log has the rest under {problem.error_id}")
    return ". ".join(part.strip().rstrip(".") for part in said if part.strip())
