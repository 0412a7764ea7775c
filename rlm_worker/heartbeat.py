"""Keeps the lease and hears orders, on threads of their own, so that no cell, model or loop can make them late."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from rlm_worker.contracts.gateway import (
    AwaitOrdersRequest,
    Desired,
    Gateway,
    GatewayDown,
    GatewayRefused,
    Lease,
    RenewAnswer,
    RenewRequest,
)

log = logging.getLogger(__name__)

_POLL_MS = 1_000
_RETRY_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Listeners:
    """Called on a heartbeat thread; must only hand over."""

    ordered: Callable[[RenewAnswer], None]
    lost: Callable[[str], None]
    #: Until when the lease is trusted, on the monotonic clock; None: it is over.
    trusted: Callable[[float | None], None] = lambda _until: None


class Heartbeat:
    """Renews one lease every third of its time, and gives it up itself before anyone else may have it.

    `claimed_at` is the monotonic time before the claim was sent: the lease cannot have been granted earlier.
    """

    def __init__(
        self,
        gateway: Gateway,
        lease: Lease,
        *,
        claimed_at: float,
        margin_seconds: float,
        listeners: Listeners,
        budget_seen: int = 0,
    ) -> None:
        self._gateway = gateway
        self._lease = lease
        self._margin = margin_seconds
        self._listeners = listeners
        self._stopping = threading.Event()
        self._seen: Desired = "run"
        self._steer_seen = 0
        self._budget_seen = budget_seen
        self._hearing = threading.Lock()
        self._trusted_until = claimed_at + self._trust(lease.ttl_ms)
        self._threads = [
            threading.Thread(target=self._renew_loop, name="custody-lease", daemon=True),
            threading.Thread(target=self._order_loop, name="custody-orders", daemon=True),
            threading.Thread(target=self._fence_loop, name="custody-fence", daemon=True),
        ]

    def start(self) -> None:
        self._listeners.trusted(self._trusted_until)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """May be called twice, and from any thread but the heartbeat's own."""
        self._stopping.set()
        self._listeners.trusted(None)

    def _trust(self, ttl_ms: int) -> float:
        seconds = ttl_ms / 1000
        return seconds - min(self._margin, seconds / 4)

    def _fence_loop(self) -> None:
        """Asks nobody: a gateway that is down, or never answers, cannot make this late."""
        while not self._stopping.wait(max(0.0, self._trusted_until - time.monotonic())):
            if time.monotonic() >= self._trusted_until:
                self._lose("the lease could not be renewed in time")

    def _renew_loop(self) -> None:
        pause = self._lease.ttl_ms / 3000
        while not self._stopping.wait(pause):
            sent = time.monotonic()
            try:
                answer = self._gateway.renew(self._renewal())
            except GatewayDown:
                pause = _RETRY_SECONDS
            except GatewayRefused as error:
                self._lose(str(error))
                return
            except Exception:
                # A defect is like a gateway that is down: if it lasts, the lease is given up in time.
                log.exception("renewal_failed", extra={"job_id": self._lease.job_id})
                pause = _RETRY_SECONDS
            else:
                pause = answer.ttl_ms / 3000
                self._trusted_until = sent + self._trust(answer.ttl_ms)
                self._listeners.trusted(self._trusted_until)
                self._hear(answer)

    def _renewal(self) -> RenewRequest:
        return RenewRequest(
            job_id=self._lease.job_id,
            fence=self._lease.fence,
            steer_seen=self._steer_seen,
            budget_seen=self._budget_seen,
        )

    def _order_loop(self) -> None:
        while not self._stopping.is_set():
            try:
                answer = self._gateway.await_orders(
                    AwaitOrdersRequest(
                        job_id=self._lease.job_id,
                        fence=self._lease.fence,
                        seen=self._seen,
                        steer_seen=self._steer_seen,
                        budget_seen=self._budget_seen,
                        timeout_ms=_POLL_MS,
                    )
                )
            except GatewayDown:
                self._stopping.wait(_RETRY_SECONDS)
            except GatewayRefused as error:
                self._lose(str(error))
                return
            except Exception:
                # Whatever it was, the next stop order must still be heard.
                log.exception("orders_failed", extra={"job_id": self._lease.job_id})
                self._stopping.wait(_RETRY_SECONDS)
            else:
                self._hear(answer)

    def _hear(self, answer: RenewAnswer) -> None:
        with self._hearing:
            fresh = tuple(steer for steer in answer.steers if steer.steer_id > self._steer_seen)
            retune = answer.retune
            if retune is not None and retune.version <= self._budget_seen:
                retune = None
            is_new = answer.desired != self._seen or fresh or retune is not None
            if self._stopping.is_set() or not is_new:
                return
            self._seen = answer.desired
            self._budget_seen = self._budget_seen if retune is None else retune.version
            self._steer_seen = max([self._steer_seen, *(steer.steer_id for steer in fresh)])
            self._listeners.ordered(answer.model_copy(update={"steers": fresh, "retune": retune}))

    def _lose(self, why: str) -> None:
        with self._hearing:
            if not self._stopping.is_set():
                self._stopping.set()
                self._listeners.lost(why)
