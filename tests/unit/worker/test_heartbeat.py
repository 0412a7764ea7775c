"""The lease is kept, orders are heard once, and a worker that cannot renew gives up before anyone else may begin."""

import threading
import time

import pytest

from rlm_worker.contracts.gateway import ClaimRequest, GatewayDown, Lease, RenewAnswer, Steer
from rlm_worker.heartbeat import Heartbeat, Listeners
from tests.builders import a_spec
from tests.memory_gateway import MemoryGateway

TTL_MS = 600


class Heard:
    """What the listeners were told, with events to wait for."""

    def __init__(self) -> None:
        self.orders: list[RenewAnswer] = []
        self.losses: list[tuple[float, str]] = []
        self._changed = threading.Condition()

    def listeners(self) -> Listeners:
        return Listeners(ordered=self._ordered, lost=self._lost)

    def _ordered(self, answer: RenewAnswer) -> None:
        with self._changed:
            self.orders.append(answer)
            self._changed.notify_all()

    def _lost(self, why: str) -> None:
        with self._changed:
            self.losses.append((time.monotonic(), why))
            self._changed.notify_all()

    def wait(self, holds, seconds: float = 5.0) -> None:
        with self._changed:
            assert self._changed.wait_for(holds, timeout=seconds), (self.orders, self.losses)


class Counting(MemoryGateway):
    """Counts renewals, and is down or silent when told."""

    def __init__(self, *, ttl_ms: int = TTL_MS) -> None:
        super().__init__(a_spec(), ttl_ms=ttl_ms)
        self.renewals = 0
        self.is_down = False
        self.silent = threading.Event()
        self.renewed = threading.Condition()

    def renew(self, request):
        if self.silent.is_set():
            threading.Event().wait(5)
        with self.renewed:
            self.renewals += 1
            self.renewed.notify_all()
        if self.is_down:
            raise GatewayDown("no route")
        return super().renew(request)

    def await_orders(self, request):
        if self.silent.is_set():
            threading.Event().wait(5)
        if self.is_down:
            raise GatewayDown("no route")
        return super().await_orders(request)


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def beating(heard):
    started = []

    def start(gateway: MemoryGateway, *, margin: float = 0.15) -> Lease:
        claimed_at = time.monotonic()
        lease = gateway.claim(ClaimRequest(worker_id="w", job_id="job-1", generation=0)).lease
        heartbeat = Heartbeat(
            gateway, lease, claimed_at=claimed_at, margin_seconds=margin, listeners=heard.listeners()
        )
        heartbeat.start()
        started.append(heartbeat)
        return lease

    yield start
    for heartbeat in started:
        heartbeat.stop()


def test_a_lease_is_renewed_for_longer_than_it_lasts(beating, heard):
    gateway = Counting()
    beating(gateway)

    with gateway.renewed:
        assert gateway.renewed.wait_for(lambda: gateway.renewals >= 4, timeout=5)

    assert heard.losses == []


@pytest.mark.requirement("LESSON-4")
def test_a_worker_gives_up_before_its_lease_can_be_granted_again_when_the_gateway_is_down(beating, heard):
    gateway = Counting()
    gateway.is_down = True
    began = time.monotonic()
    beating(gateway)

    heard.wait(lambda: heard.losses)

    assert heard.losses[0][0] - began < TTL_MS / 1000
    assert "could not be renewed in time" in heard.losses[0][1]


def test_a_worker_gives_up_in_time_also_when_the_gateway_never_answers(beating, heard):
    gateway = Counting()
    gateway.silent.set()
    began = time.monotonic()
    beating(gateway)

    heard.wait(lambda: heard.losses)

    assert heard.losses[0][0] - began < TTL_MS / 1000


def test_a_slow_claim_counts_against_the_lease(heard):
    gateway = Counting()
    gateway.is_down = True
    lease = gateway.claim(ClaimRequest(worker_id="w", job_id="job-1", generation=0)).lease
    long_ago = time.monotonic() - 10
    heartbeat = Heartbeat(
        gateway, lease, claimed_at=long_ago, margin_seconds=0.05, listeners=heard.listeners()
    )

    heartbeat.start()

    heard.wait(lambda: heard.losses, seconds=0.2)
    heartbeat.stop()


def test_a_lease_shorter_than_the_margin_can_still_be_kept(beating, heard):
    gateway = Counting(ttl_ms=600)
    beating(gateway, margin=60)

    with gateway.renewed:
        assert gateway.renewed.wait_for(lambda: gateway.renewals >= 4, timeout=5)

    assert heard.losses == []


def test_a_lost_lease_is_told_at_once_and_once(beating, heard):
    gateway = Counting(ttl_ms=60_000)
    beating(gateway)

    gateway.expire()

    heard.wait(lambda: heard.losses, seconds=2)
    assert len(heard.losses) == 1
    assert "stale" in heard.losses[0][1]


@pytest.mark.parametrize("order", ["stop", "kill", "pause"])
def test_an_order_is_heard_at_once_and_once(beating, heard, order):
    gateway = Counting()
    beating(gateway)

    gateway.order(order)

    heard.wait(lambda: heard.orders, seconds=2)
    before = gateway.renewals
    with gateway.renewed:
        gateway.renewed.wait_for(lambda: gateway.renewals >= before + 2, timeout=5)
    assert [answer.desired for answer in heard.orders] == [order]


def test_an_order_is_heard_also_after_a_defect_of_the_way_it_comes(beating, heard):
    """The lease is long: no renewal could bring the order within this test."""
    failed = threading.Event()

    class Defective(Counting):
        def await_orders(self, request):
            if not failed.is_set():
                failed.set()
                raise TypeError("a defect")
            return super().await_orders(request)

    gateway = Defective(ttl_ms=600_000)
    beating(gateway)
    assert failed.wait(5)

    gateway.order("stop")

    heard.wait(lambda: heard.orders, seconds=5)
    assert heard.losses == []


def test_every_steer_is_delivered_once_in_order_though_two_threads_hear_them(beating, heard):
    gateway = Counting()
    beating(gateway)

    for number in range(20):
        gateway.steer(f"steer {number}")

    heard.wait(lambda: sum(len(answer.steers) for answer in heard.orders) >= 20)
    before = gateway.renewals
    with gateway.renewed:
        gateway.renewed.wait_for(lambda: gateway.renewals >= before + 2, timeout=5)
    told = [steer for answer in heard.orders for steer in answer.steers]
    assert told == [Steer(steer_id=n + 1, text=f"steer {n}") for n in range(20)]


def test_nothing_is_told_after_a_stop(heard):
    gateway = Counting()
    lease = gateway.claim(ClaimRequest(worker_id="w", job_id="job-1", generation=0)).lease
    heartbeat = Heartbeat(
        gateway, lease, claimed_at=time.monotonic(), margin_seconds=0.05, listeners=heard.listeners()
    )
    heartbeat.start()

    heartbeat.stop()
    heartbeat.stop()
    gateway.order("kill")
    gateway.expire()
    for thread in heartbeat._threads:
        thread.join(3)

    assert not any(thread.is_alive() for thread in heartbeat._threads)
    assert (heard.orders, heard.losses) == ([], [])
