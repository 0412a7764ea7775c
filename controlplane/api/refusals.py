"""What a worker is answered when it is refused, in one table: its client makes the gateway's own errors of the codes."""

from controlplane.adapters.lending import EvidenceChanged
from controlplane.api.wire import Refused
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
from rlm_worker.contracts.gateway import ChainRefused, GatewayDown, HoldRefused, LeaseLost
from rlm_worker.contracts.trace import BrokenChain

#: Status, code, title and hint of each, the first that fits.
_TABLE: tuple[tuple[type[Exception], tuple[int, str, str, str]], ...] = (
    (
        EvidenceChanged,
        (409, "evidence_changed", "the evidence is not what was staged", "stage it again and ask anew"),
    ),
    (LeaseLost, (409, "lease_lost", "the lease is not this worker's any more", "stop working on the job")),
    (HoldRefused, (409, "hold_refused", "a limit would be passed", "ask for less")),
    (ChainRefused, (422, "chain_refused", "the write does not fit what is stored", "give the attempt up")),
    (GatewayDown, (503, "unavailable", "the store did not answer", "send the same again in a moment")),
    (Stale, (409, "lease_lost", "the lease is not this worker's any more", "stop working on the job")),
    (Denied, (403, "denied", "the key does not allow this", "use a key with the role worker")),
    (NotFound, (404, "not_found", "there is no such thing here", "look at the name")),
    (OverBudget, (409, "hold_refused", "a limit would be passed", "ask for less")),
    (Tampered, (409, "tampered", "what is stored was changed", "look at it before anything else")),
    (BrokenChain, (422, "chain_refused", "the write does not fit what is stored", "give the attempt up")),
    (InvalidRequest, (422, "chain_refused", "the write does not fit what is stored", "give the attempt up")),
    (Unavailable, (503, "unavailable", "the store did not answer", "send the same again in a moment")),
)
REFUSALS = (ControlPlaneError, LeaseLost, HoldRefused, ChainRefused, GatewayDown, BrokenChain)


def refused(error: Exception) -> Refused:
    """The answer that an error becomes."""
    status, code, title, hint = next(said for kind, said in _TABLE if isinstance(error, kind))
    return Refused(status, code, title, str(error), hint)
