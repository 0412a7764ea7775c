"""What workers of other machines may ask of this process: each under a key, and under the leases that were granted to that key.

Handlers run on threads of their own number; whoever waits holds none (see `lookout`).
"""

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio
import anyio.to_thread
from starlette.requests import Request

from controlplane.adapters.arrivals import Arrivals
from controlplane.adapters.evidence import EvidenceRoom
from controlplane.adapters.lending import Lender
from controlplane.api.lookout import Lookout
from controlplane.api.offers import offers
from controlplane.api.wire import Refused
from controlplane.domain.identity import Caller
from controlplane.errors import NotFound
from controlplane.gateway import LocalGateway
from controlplane.handlers import keys, remote
from controlplane.ports import Desk
from rlm_worker.contracts import EvidenceRef, JobSpec, TraceRecord
from rlm_worker.contracts.base import PROTOCOL_VERSION, Contract
from rlm_worker.contracts.gateway import (
    AwaitOrdersRequest,
    ClaimRequest,
    ParkRequest,
    ReadTraceAnswer,
    ReadTraceRequest,
    RecordRequest,
    RenewAnswer,
    RenewRequest,
    SettleRequest,
    WakeUp,
)
from rlm_worker.contracts.remote import (
    MEDIA_BYTES,
    EvidenceRequest,
    FilesRequest,
    HandBackAnswer,
    HandBackRequest,
    HelloAnswer,
    HelloRequest,
    WaitAnswer,
    WaitRequest,
)

#: Handlers of the gateway that run at once; the store lets one writer in at a time anyway.
_THREADS = 32
#: Longest wait for orders or work, whatever was asked for.
_LONGEST_POLL_SECONDS = 30.0
#: Leases whose holder is remembered: whom a fence was granted to never changes.
_HOLDERS = 10_000
#: Specs of jobs whose evidence was asked for lately.
_SPECS = 64
#: Events of a trace that are read at once, and bytes of them after which a page ends.
_SLICE = 50
_PAGE_BYTES = 8 << 20


class Credentials(Protocol):
    """Whoever knows whose a bearer token is."""

    def caller(self, token: str) -> Caller | None: ...


class KeyCredentials:
    """Keys of the store. What was found is believed for a moment: a revoked key is refused within `seconds`."""

    def __init__(self, desk: Desk, *, seconds: float = 1.0) -> None:
        self._desk = desk
        self._seconds = seconds
        self._known: dict[str, tuple[float, Caller]] = {}

    def caller(self, token: str) -> Caller | None:
        now = time.monotonic()
        known = self._known.get(token)
        if known is not None and now < known[0]:
            return known[1]
        found = keys.verify(self._desk, token)
        self._known = {old: kept for old, kept in list(self._known.items()) if now < kept[0]}
        if found is not None:
            self._known[token] = (now + self._seconds, found)
        return found


Found = TypeVar("Found")
Fenced = RenewRequest | RecordRequest | ReadTraceRequest | SettleRequest | ParkRequest | AwaitOrdersRequest


class GatewayService:
    """The gateway of one process; `close` it before the server shuts down, so that nobody is waited for."""

    def __init__(
        self,
        desk: Desk,
        credentials: Credentials,
        *,
        request_bytes: int,
        evidence: EvidenceRoom,
        artifacts: Path,
    ) -> None:
        self.desk = desk
        self.request_bytes = request_bytes
        self.lookout = Lookout(
            desk.store, lambda scope, limit, but: offers(desk, scope, limit, but), beside=desk.side.of
        )
        self._local = LocalGateway(desk)
        self._credentials = credentials
        self._lender = Lender(evidence)
        self._arrivals = Arrivals(artifacts)
        self._specs: OrderedDict[str, JobSpec] = OrderedDict()
        self._holders: OrderedDict[tuple[str, int], str] = OrderedDict()
        self._lock = threading.Lock()
        self._threads: anyio.CapacityLimiter | None = None

    async def in_thread(self, work: Callable[[], Found]) -> Found:
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(_THREADS)
        return await anyio.to_thread.run_sync(work, limiter=self._threads)

    def close(self) -> None:
        self.lookout.close()

    def admit(self, request: Request) -> Caller:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        caller = self._credentials.caller(token.strip()) if scheme.lower() == "bearer" else None
        if caller is None:
            raise Refused(
                401,
                "unauthenticated",
                "the key is not accepted",
                "no valid key came with the request: it is missing, wrong, expired or was revoked",
                "start the worker with a key of the role worker",
            )
        remote.let_in(caller)
        return caller

    def check(self, caller: Caller, request: Fenced) -> None:
        """Refuse a fence that was granted to another credential."""
        self.check_fence(caller, request.job_id, request.fence)

    def check_fence(self, caller: Caller, job_id: str, fence: int) -> None:
        with self._lock:
            worker_id = self._holders.get((job_id, fence), "")
        if not worker_id:
            worker_id = remote.holder(self.desk, job_id, fence)
            if worker_id:
                self._remember(job_id, fence, worker_id)
        remote.check_holder(caller, worker_id, job_id=job_id, fence=fence)

    def _remember(self, job_id: str, fence: int, worker_id: str) -> None:
        with self._lock:
            self._holders[job_id, fence] = worker_id
            while len(self._holders) > _HOLDERS:
                self._holders.popitem(last=False)

    # ── one method for each request; they run on threads ─────────────────────────────────────────────────────

    def hello(self, caller: Caller, request: HelloRequest) -> Contract:
        worker_id, is_draining = remote.enlist(self.desk, request, caller=caller)
        return HelloAnswer(
            protocol=PROTOCOL_VERSION,
            worker_id=worker_id,
            server=_versions(),
            lease_ttl_ms=self.desk.rules.lease_ttl_ms,
            max_request_bytes=self.request_bytes,
            is_draining=is_draining,
        )

    def hand_back(self, caller: Caller, request: HandBackRequest) -> Contract:
        return HandBackAnswer(jobs=remote.hand_back(self.desk, request.worker_id, caller=caller))

    def claim(self, caller: Caller, request: ClaimRequest) -> Contract:
        return remote.claim(self.desk, request, caller=caller)

    def renew(self, caller: Caller, request: RenewRequest) -> Contract:
        self.check(caller, request)
        return self._local.renew(request)

    def record(self, caller: Caller, request: RecordRequest) -> Contract:
        self.check(caller, request)
        return self._local.record(request)

    def read_trace(self, caller: Caller, request: ReadTraceRequest) -> Contract:
        """A page that ends early when its events are long."""
        self.check(caller, request)
        found, size, more = list[TraceRecord](), 0, True
        while more and len(found) < request.limit and size < _PAGE_BYTES:
            piece = request.model_copy(
                update={
                    "after": request.after + len(found),
                    "limit": min(_SLICE, request.limit - len(found)),
                }
            )
            page = self._local.read_trace(piece)
            found, more = [*found, *page.records], page.more
            size += sum(len(str(record.event)) for record in page.records)
        return ReadTraceAnswer.made(records=tuple(found), more=more)

    def settle(self, caller: Caller, request: SettleRequest) -> Contract:
        self.check(caller, request)
        return self._local.settle(request)

    def park(self, caller: Caller, request: ParkRequest) -> Contract:
        self.check(caller, request)
        return self._local.park(request)

    def look(self, caller: Caller, request: AwaitOrdersRequest) -> RenewAnswer:
        """What is wanted now."""
        self.check(caller, request)
        return self._local.await_orders(request.model_copy(update={"timeout_ms": 1}))

    def evidence(self, caller: Caller, request: EvidenceRequest) -> Contract:
        ref = self._leased_evidence(caller, request)
        return self._lender.page(ref, request.part, after=request.after)

    def files(self, caller: Caller, request: FilesRequest) -> bytes:
        ref = self._leased_evidence(caller, request)
        return self._lender.bytes_of(ref, request.part, request.numbers, offset=request.offset)

    def keep(
        self, caller: Caller, job_id: str, content: str, piece: bytes, *, fence: int, offset: int, size: int
    ) -> Contract:
        """A piece of a file that the leased job made."""
        spec = self._leased(caller, job_id, fence)
        most = max(spec.artifact_policy.max_bytes, MEDIA_BYTES)
        return self._arrivals.take(job_id, content, piece, offset=offset, size=size, most=most)

    def _leased_evidence(self, caller: Caller, request: EvidenceRequest | FilesRequest) -> EvidenceRef:
        """Evidence that a leased job names; any other is not there."""
        spec = self._leased(caller, request.job_id, request.fence)
        for ref in spec.input_artifacts:
            if ref.name == request.name:
                return ref
        raise NotFound(f"job {request.job_id} has no evidence {request.name!r}")

    def _leased(self, caller: Caller, job_id: str, fence: int) -> JobSpec:
        self.check_fence(caller, job_id, fence)
        remote.check_lease(self.desk, job_id, fence=fence)
        with self._lock:
            known = self._specs.get(job_id)
        if known is None:
            known = remote.spec(self.desk, job_id)
            with self._lock:
                self._specs[job_id] = known
                while len(self._specs) > _SPECS:
                    self._specs.popitem(last=False)
        return known

    # ── those who wait ───────────────────────────────────────────────────────────────────────────────────────

    async def await_orders(self, caller: Caller, request: AwaitOrdersRequest) -> Contract:
        seconds = min(request.timeout_ms / 1000, _LONGEST_POLL_SECONDS)
        with self.lookout.for_job(request.job_id) as waiter:
            # What changes from the first look on is told; what was before it is asked for once.
            await _done(waiter.seen, seconds)
            answer = await self.in_thread(partial(self.look, caller, request))
            if _is_news(answer, request) or not await _done(waiter.stirred, seconds):
                return answer
        return await self.in_thread(partial(self.look, caller, request))

    async def wait(self, caller: Caller, request: WaitRequest) -> Contract:
        worker_id = remote.bound(caller, request.worker_id)
        is_draining = await self.in_thread(partial(remote.is_draining, self.desk, worker_id))
        if is_draining:
            return WaitAnswer(is_draining=True)
        with self.lookout.for_work(caller.scope, free=request.free) as waiter:
            await _done(waiter.stirred, min(request.timeout_ms / 1000, _LONGEST_POLL_SECONDS))
            jobs = waiter.stirred.result() if waiter.stirred.done() else []
        return WaitAnswer(jobs=tuple(WakeUp(job_id=job.job_id, generation=job.generation) for job in jobs))


def _is_news(answer: RenewAnswer, request: AwaitOrdersRequest) -> bool:
    """Whether an answer says anything but what the worker has seen: of an order, of steers, of whatever else there is."""
    nothing = RenewAnswer(desired=request.seen, reason=answer.reason, ttl_ms=answer.ttl_ms)
    return answer != nothing


async def _done(future: "asyncio.Future[Any]", seconds: float) -> bool:
    await asyncio.wait((future,), timeout=seconds)
    return future.done()


def _versions() -> dict[str, str]:
    try:
        return {"custody": version("custody")}
    except PackageNotFoundError:
        return {"custody": "source"}
