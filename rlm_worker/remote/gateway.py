"""The gateway over HTTP, as a worker of another machine has it: the same promises as the one in process, and the same errors."""

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from rlm_worker.contracts.base import Contract
from rlm_worker.contracts.gateway import (
    AwaitOrdersRequest,
    ChainRefused,
    ClaimAnswer,
    Claimed,
    ClaimRequest,
    GatewayDown,
    GatewayRefused,
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
from rlm_worker.contracts.remote import (
    GATEWAY_PATH,
    EvidenceAnswer,
    EvidenceRequest,
    FilesRequest,
    HandBackAnswer,
    HandBackRequest,
    HelloAnswer,
    HelloRequest,
    KeptAnswer,
    WaitAnswer,
    WaitRequest,
)
from rlm_worker.remote.link import Link, Reply, Server, encoded

Answer = TypeVar("Answer", bound=Contract)
Found = TypeVar("Found")

#: A renewal that takes longer is as good as none: the lease has to be kept in time.
_RENEW_SECONDS = 5.0
#: Orders are waited for so long at once, whatever was asked for: a server that is left in peace serves more workers.
#: It answers at once when something is wanted, and when the lease is over.
_POLL_SECONDS = 10.0
#: Beyond the time a server may wait, what its answer may take on the way.
_POLL_MARGIN_SECONDS = 10.0
#: Reading again changes nothing, so a server that is being restarted is waited for.
_READ_AGAIN_SECONDS = 10.0
_AGAIN_SECONDS = 0.2


_CLAIM: TypeAdapter[Claimed | NotClaimed] = TypeAdapter(ClaimAnswer)


#: Made once: making one costs more than reading most answers.
_ADAPTERS: dict[type[Contract], TypeAdapter[Any]] = {}


def _adapter(answer: type[Answer]) -> TypeAdapter[Answer]:
    if answer not in _ADAPTERS:
        _ADAPTERS[answer] = TypeAdapter(answer)
    return _ADAPTERS[answer]


class NotAdmitted(GatewayRefused):
    """The server does not accept the key."""


class WrongProtocol(GatewayRefused):
    """The server and this worker have no protocol in common."""


class EvidenceRefused(GatewayRefused):
    """The evidence is not what was staged."""


class TooLarge(GatewayRefused):
    """The server does not take a request of this size."""


_ERRORS: dict[str, type[GatewayRefused]] = {
    "lease_lost": LeaseLost,
    "hold_refused": HoldRefused,
    "chain_refused": ChainRefused,
    "unavailable": GatewayDown,
    "unauthenticated": NotAdmitted,
    "denied": NotAdmitted,
    "protocol": WrongProtocol,
    "evidence_changed": EvidenceRefused,
    "too_large": TooLarge,
}


class HttpGateway:
    """What a worker may ask of a control plane elsewhere. Synchronous; safe to call from several threads."""

    def __init__(self, server: Server, *, least_poll_seconds: float = _POLL_SECONDS) -> None:
        self._link = Link(server)
        self._least_poll_ms = int(least_poll_seconds * 1000)
        #: Most bytes of a request; smaller once the server has said so.
        self._most_bytes = 16 << 20

    def close(self) -> None:
        self._link.close()

    # ── what every gateway offers ────────────────────────────────────────────────────────────────────────────

    def claim(self, request: ClaimRequest) -> Claimed | NotClaimed:
        # Not sent twice: the first may have been granted, and the second would be told that somebody has it.
        reply = self._link.post(f"{GATEWAY_PATH}/claim", encoded(request), is_safe=False)
        return _read(_CLAIM, reply)

    def renew(self, request: RenewRequest) -> RenewAnswer:
        return self._ask("renew", request, RenewAnswer, seconds=_RENEW_SECONDS)

    def await_orders(self, request: AwaitOrdersRequest) -> RenewAnswer:
        patient = request.model_copy(update={"timeout_ms": max(self._least_poll_ms, request.timeout_ms)})
        seconds = patient.timeout_ms / 1000 + _POLL_MARGIN_SECONDS
        return self._ask("await_orders", patient, RenewAnswer, seconds=seconds)

    def record(self, request: RecordRequest) -> RecordAnswer:
        """Record a group; one that is too long for a request goes in parts, in its order."""
        body = encoded(request)
        if len(body) > self._most_bytes and len(request.records) > 1:
            middle = len(request.records) // 2
            self.record(request.model_copy(update={"records": request.records[:middle]}))
            return self.record(request.model_copy(update={"records": request.records[middle:]}))
        return _read(_adapter(RecordAnswer), self._link.post(f"{GATEWAY_PATH}/record", body))

    def read_trace(self, request: ReadTraceRequest) -> ReadTraceAnswer:
        return _again(lambda: self._ask("read_trace", request, ReadTraceAnswer))

    def settle(self, request: SettleRequest) -> SettleAnswer:
        return self._ask("settle", request, SettleAnswer)

    def park(self, request: ParkRequest) -> ParkAnswer:
        return self._ask("park", request, ParkAnswer)

    # ── what only a worker of another machine asks ───────────────────────────────────────────────────────────

    def hello(self, request: HelloRequest) -> HelloAnswer:
        answer = self._ask("hello", request, HelloAnswer)
        self._most_bytes = min(self._most_bytes, answer.max_request_bytes)
        return answer

    def wait(self, request: WaitRequest) -> WaitAnswer:
        seconds = request.timeout_ms / 1000 + _POLL_MARGIN_SECONDS
        return self._ask("wait", request, WaitAnswer, seconds=seconds)

    def hand_back(self, request: HandBackRequest) -> int:
        return self._ask("hand_back", request, HandBackAnswer).jobs

    def evidence(self, digest: str, request: EvidenceRequest) -> EvidenceAnswer:
        return self._ask(f"evidence/{digest}", request, EvidenceAnswer)

    def files(self, digest: str, request: FilesRequest) -> bytes:
        reply = self._link.post(f"{GATEWAY_PATH}/evidence/{digest}/files", encoded(request))
        return _accepted(reply).body

    def keep(
        self, job_id: str, fence: int, digest: str, piece: bytes, *, offset: int, size: int
    ) -> KeptAnswer:
        """Hand in a piece of a file that the job made."""
        asked = f"job_id={quote(job_id, safe='')}&fence={fence}&offset={offset}&size={size}"
        reply = self._link.put(f"{GATEWAY_PATH}/blobs/{digest}?{asked}", piece)
        return _read(_adapter(KeptAnswer), reply)

    def _ask(
        self, what: str, request: Contract, answer: type[Answer], *, seconds: float | None = None
    ) -> Answer:
        reply = self._link.post(f"{GATEWAY_PATH}/{what}", encoded(request), seconds=seconds)
        return _read(_adapter(answer), reply)


def _again(ask: Callable[[], Answer]) -> Answer:
    """Ask until there is an answer, for as long as a server may need to start anew."""
    give_up = time.monotonic() + _READ_AGAIN_SECONDS
    while True:
        try:
            return ask()
        except GatewayDown:
            if time.monotonic() >= give_up:
                raise
            time.sleep(_AGAIN_SECONDS)


def _accepted(reply: Reply) -> Reply:
    """The answer, unless it is a refusal: then the gateway's own error of it."""
    if reply.status == 200:
        return reply
    said = reply.problem()
    code = str(said.get("code", ""))
    detail = str(said.get("detail", "")) or f"the server answered {reply.status}"
    if code in _ERRORS:
        raise _ERRORS[code](detail)
    if reply.status in (429, 500, 502, 503, 504):
        # A proxy, or a server that stumbles: whether a write arrived is unknown.
        raise GatewayDown(detail)
    if reply.status in (401, 403):
        raise NotAdmitted(detail)
    raise GatewayRefused(detail)


def _read(answer: TypeAdapter[Found], reply: Reply) -> Found:
    body = _accepted(reply).body
    try:
        try:
            return answer.validate_json(body)
        except ValidationError as error:
            if error.errors()[0]["type"] != "json_invalid":
                raise
            # Halves of surrogate pairs stand as escapes, which only this parser takes.
            return answer.validate_python(json.loads(body))
    except (ValidationError, ValueError) as error:
        raise GatewayRefused(
            f"the server's answer cannot be read, is it of another version? {error}"
        ) from error
