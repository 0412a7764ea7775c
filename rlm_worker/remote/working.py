"""How a worker elsewhere learns of work: from Redis, or by asking the gateway. Either way only a claim says whose a job is."""

import logging
import threading
from collections.abc import Callable
from typing import Protocol

from rlm_worker.contracts.gateway import GatewayDown, GatewayRefused, WakeUp
from rlm_worker.contracts.remote import HelloAnswer, HelloRequest, WaitRequest
from rlm_worker.remote.gateway import HttpGateway

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 0.5
_HELLO_SECONDS = 15.0
#: Time for the threads that read the queue to end.
_STOP_MS = 1_000

#: Works on one job: claims it, runs it, settles it.
Run = Callable[[str, int], None]


class Source(Protocol):
    """Where work comes from."""

    def start(self) -> None: ...

    def stop_taking(self) -> None:
        """Begin nothing more; what runs goes on."""
        ...

    def join(self, seconds: float) -> bool:
        """Wait for what runs; whether all of it has ended."""
        ...


class Busy:
    """What runs here, so that nothing is begun twice or after the end of taking."""

    def __init__(self, run: Run, *, slots: int) -> None:
        self._run = run
        self._slots = slots
        self._jobs: set[str] = set()
        self._is_taking = True
        self._changed = threading.Condition()

    def run(self, job_id: str, generation: int) -> None:
        if self.take(job_id):
            self.work(job_id, generation)

    def take(self, job_id: str) -> bool:
        """Set a slot aside; False when the job has one, or when no more work is taken."""
        with self._changed:
            is_free = self._is_taking and job_id not in self._jobs
            if is_free:
                self._jobs.add(job_id)
            return is_free

    def work(self, job_id: str, generation: int) -> None:
        """Work on a job whose slot was set aside."""
        try:
            self._run(job_id, generation)
        except GatewayRefused as refused:
            # Not claimed, as far as is known: whoever is free is told of the job again.
            log.warning("claim_failed", extra={"job_id": job_id, "reason": str(refused)})
        finally:
            with self._changed:
                self._jobs.discard(job_id)
                self._changed.notify_all()

    def free(self) -> int:
        """Wait until there is a free slot; how many there are, none when no more work is taken."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_taking or len(self._jobs) < self._slots)
            return self._slots - len(self._jobs) if self._is_taking else 0

    def stop_taking(self) -> None:
        with self._changed:
            self._is_taking = False
            self._changed.notify_all()

    def join(self, seconds: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs, timeout=seconds)


class AskingSource:
    """Asks the gateway for work whenever a slot is free; it answers as soon as there is some."""

    def __init__(self, gateway: HttpGateway, worker_id: str, run: Run, *, slots: int) -> None:
        self._gateway = gateway
        self._worker_id = worker_id
        self._busy = Busy(run, slots=slots)
        self._stopping = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._turn, name="custody-wait", daemon=True).start()

    def _turn(self) -> None:
        while free := self._busy.free():
            try:
                jobs = self._ask(free)
            except GatewayDown:
                self._stopping.wait(_AGAIN_SECONDS)
            except GatewayRefused as refused:
                # Whether the key is still good is found out by the one who says hello.
                log.warning("no_work", extra={"reason": str(refused)})
                self._stopping.wait(_AGAIN_SECONDS)
            except Exception:
                log.exception("waiting_failed")
                self._stopping.wait(_AGAIN_SECONDS)
            else:
                for wake in jobs:
                    self._begin(wake)

    def _begin(self, wake: WakeUp) -> None:
        if self._busy.take(wake.job_id):
            given = (wake.job_id, wake.generation)
            threading.Thread(target=self._busy.work, args=given, name="custody-job", daemon=True).start()

    def _ask(self, free: int) -> tuple[WakeUp, ...]:
        return self._gateway.wait(WaitRequest(worker_id=self._worker_id, free=free)).jobs

    def stop_taking(self) -> None:
        self._stopping.set()
        self._busy.stop_taking()

    def join(self, seconds: float) -> bool:
        return self._busy.join(seconds)


class RedisSource:
    """Takes wake-ups off the queue in Redis, as workers beside the control plane do."""

    def __init__(self, url: str, run: Run, *, slots: int, namespace: str) -> None:
        self._url = url
        self._namespace = namespace
        self._busy = Busy(run, slots=slots)
        self._slots = slots
        self._stop: Callable[[], None] = lambda: None

    def start(self) -> None:
        import dramatiq  # noqa: PLC0415 - only who reaches Redis needs it

        from rlm_worker.serving import IDLE_MS, TraceContext, declare  # noqa: PLC0415
        from rlm_worker.wakeups import redis_broker  # noqa: PLC0415

        broker = redis_broker(self._url, namespace=self._namespace)
        broker.add_middleware(TraceContext())
        declare(broker, run=self._busy.run)
        worker = dramatiq.Worker(broker, worker_threads=self._slots, worker_timeout=IDLE_MS)
        # More would sit behind a long job while another worker is idle.
        worker.queue_prefetch = self._slots
        worker.start()
        self._stop = lambda: worker.stop(timeout=_STOP_MS)

    def stop_taking(self) -> None:
        self._busy.stop_taking()

    def join(self, seconds: float) -> bool:
        done = self._busy.join(seconds)
        self._stop()
        return done


class Presence:
    """Says hello again from time to time; hears whether to drain, and whether the key is still good."""

    def __init__(
        self,
        gateway: HttpGateway,
        request: HelloRequest,
        *,
        drain: Callable[[], None],
        refused: Callable[[GatewayRefused], None],
        seconds: float = _HELLO_SECONDS,
    ) -> None:
        self._gateway = gateway
        self._request = request
        self._drain = drain
        self._refused = refused
        self._seconds = seconds
        self._stopping = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._turn, name="custody-hello", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def _turn(self) -> None:
        while not self._stopping.wait(self._seconds):
            try:
                answer: HelloAnswer = self._gateway.hello(self._request)
            except GatewayDown:
                continue
            except GatewayRefused as refused:
                self._refused(refused)
                return
            except Exception:
                log.exception("hello_failed")
                continue
            if answer.is_draining:
                self._drain()
                return
