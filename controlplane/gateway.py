"""The gateway in process: the worker's requests become handler calls, and errors become the gateway's own."""

from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.errors import InvalidRequest, NotFound, OverBudget, Stale, Unavailable
from controlplane.handlers import leases, parking, recording, settling
from controlplane.ports import Desk
from rlm_worker.contracts.gateway import (
    AwaitOrdersRequest,
    ChainRefused,
    Claimed,
    ClaimRequest,
    GatewayDown,
    HoldRefused,
    LeaseLost,
    NotClaimed,
    ParkAnswer,
    ParkRequest,
    ReadTraceAnswer,
    ReadTraceRequest,
    RecordAnswer,
    RecordRequest,
    RenewAnswer,
    RenewRequest,
    SettleAnswer,
    SettleRequest,
)
from rlm_worker.contracts.trace import BrokenChain


class LocalGateway:
    """What a worker in this process may ask. Safe to call from several threads."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def claim(self, request: ClaimRequest) -> Claimed | NotClaimed:
        with _refusals():
            return leases.claim(self._desk, request)

    def renew(self, request: RenewRequest) -> RenewAnswer:
        with _refusals():
            return leases.renew(self._desk, request)

    def await_orders(self, request: AwaitOrdersRequest) -> RenewAnswer:
        with _refusals():
            return leases.await_orders(self._desk, request)

    def record(self, request: RecordRequest) -> RecordAnswer:
        with _refusals():
            return recording.record(self._desk, request)

    def read_trace(self, request: ReadTraceRequest) -> ReadTraceAnswer:
        with _refusals():
            return recording.read_trace(self._desk, request)

    def settle(self, request: SettleRequest) -> SettleAnswer:
        with _refusals():
            return settling.settle(self._desk, request)

    def park(self, request: ParkRequest) -> ParkAnswer:
        with _refusals():
            return parking.park(self._desk, request)


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except (Stale, NotFound) as error:
        raise LeaseLost(str(error)) from error
    except OverBudget as error:
        raise HoldRefused(str(error)) from error
    except (BrokenChain, InvalidRequest) as error:
        raise ChainRefused(str(error)) from error
    except Unavailable as error:
        raise GatewayDown(str(error)) from error
