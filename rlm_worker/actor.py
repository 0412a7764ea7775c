"""The only place where a queue's thread meets an event loop: a wake-up becomes one attempt."""

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import sandbox
from rlm_worker import deadman
from rlm_worker.contracts.gateway import (
    Claimed,
    ClaimRequest,
    GatewayRefused,
    NotClaimed,
    RenewAnswer,
    Retune,
)
from rlm_worker.errors import LostAuthority
from rlm_worker.ground import Ground
from rlm_worker.heartbeat import Heartbeat, Listeners
from rlm_worker.job import Attempt, Parts
from rlm_worker.orders import Orders

log = logging.getLogger(__name__)


class Runner:
    """Claims a job and runs one attempt at it."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        sandbox.warm()
        # What was imported stays: the collector need not look at it again while batches run.
        gc.freeze()

    def run(self, job_id: str, generation: int) -> None:
        """Answer a wake-up. One that is late, doubled or for another worker's job changes nothing."""
        request = ClaimRequest(worker_id=self._parts.worker_id, job_id=job_id, generation=generation)
        claimed_at = time.monotonic()
        answer = self._parts.gateway.claim(request)
        if isinstance(answer, NotClaimed):
            log.info(
                "not_claimed", extra={"job_id": job_id, "reason": answer.reason, "detail": answer.detail}
            )
            return
        try:
            asyncio.run(self._attempt(answer, claimed_at))
        except (LostAuthority, GatewayRefused) as lost:
            log.warning("attempt_lost", extra={"job_id": job_id, "reason": str(lost)})
        except Exception:
            # A defect of ours: the attempt is lost and the control plane gives the job to another one.
            log.exception("attempt_failed", extra={"job_id": job_id})

    async def _attempt(self, claimed: Claimed, claimed_at: float) -> None:
        loop = asyncio.get_running_loop()
        orders, enough = Orders(), threading.Event()
        attempts: list[Attempt] = []

        def lose(why: str) -> None:
            enough.set()
            for attempt in attempts:
                attempt.fence()
            _hand_over(loop, orders.lose, why)

        def hear(answer: RenewAnswer) -> None:
            if answer.desired != "run":
                enough.set()
            _hand_over(loop, partial(orders.hear, at=time.monotonic()), answer)

        heartbeat = Heartbeat(
            self._parts.gateway,
            claimed.lease,
            claimed_at=claimed_at,
            budget_seen=0 if claimed.retune is None else claimed.retune.version,
            margin_seconds=self._parts.settings.lease_margin_seconds,
            listeners=Listeners(ordered=hear, lost=lose, trusted=partial(deadman.PROCESS.trust, id(orders))),
        )
        heartbeat.start()
        ground: Ground | None = None
        try:
            if self._parts.place is not None:
                # Under the lease: what has to come from afar may take long. Limits may change meanwhile.
                retunes: list[Retune] = []
                orders.on_retune = retunes.append
                ground = await asyncio.to_thread(self._parts.place.bring, claimed, enough)
                claimed = claimed.model_copy(update={"retune": [claimed.retune, *retunes][-1]})
            attempts.append(Attempt(claimed, self._parts, orders, ground=ground))
            await attempts[0].run()
        finally:
            heartbeat.stop()
            if ground is not None:
                await asyncio.to_thread(ground.close)


def _hand_over(loop: asyncio.AbstractEventLoop, listener: Callable[[Any], None], said: object) -> None:
    try:
        loop.call_soon_threadsafe(listener, said)
    except RuntimeError:
        # The loop is closed: the attempt has ended and nobody listens any more.
        log.debug("order_after_end")
