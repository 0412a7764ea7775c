"""A process that works on jobs: takes wake-ups from a queue, tells that it is there, and lets go of everything when it ends."""

import contextvars
import logging
import os
import platform
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from types import FrameType
from typing import Literal, Protocol

import dramatiq
from dramatiq.broker import Broker, MessageProxy
from dramatiq.middleware import Middleware

from rlm_worker.contracts.base import PROTOCOL_VERSION, JsonObject
from rlm_worker.contracts.gateway import JOBS_QUEUE, RUN_JOB

log = logging.getLogger(__name__)

#: W3C trace context of the wake-up that this thread works on; empty outside of one.
TRACEPARENT: contextvars.ContextVar[str] = contextvars.ContextVar("traceparent", default="")


class TraceContext(Middleware):
    """Lets whoever works on a wake-up see the trace context that came with it."""

    def before_process_message(self, broker: Broker, message: MessageProxy) -> None:
        _ = broker
        TRACEPARENT.set(str(message.options.get("traceparent", "")))


#: Works on one job: claims it, runs it, settles it.
Run = Callable[[str, int], None]
#: What a stopping worker does with its jobs: others go on with them at once, or it has some time to finish them.
Drain = Literal["hand_back", "finish"]

BEAT_SECONDS = 5.0
#: Milliseconds after which an idle queue is looked at again.
IDLE_MS = 50


@dataclass(frozen=True, kw_only=True)
class WorkerCard:
    """What a worker says about itself."""

    #: Jobs of the common queue that it works on at once.
    slots: int
    host: str = field(default_factory=socket.gethostname)
    image: str = ""
    facts: JsonObject = field(default_factory=dict)


def facts(*, sandbox: str) -> JsonObject:
    """What runs here."""
    try:
        version = metadata.version("custody")
    except metadata.PackageNotFoundError:
        version = "unknown"
    return {
        "custody": version,
        "python": platform.python_version(),
        "protocol": PROTOCOL_VERSION,
        "sandbox": sandbox,
        "pid": os.getpid(),
    }


class Registry(Protocol):
    """Where a worker says that it is there. Raises whatever it likes: a worker works on meanwhile."""

    def register(self) -> None: ...

    def beat(self) -> bool:
        """Still here; True: take nothing new."""
        ...

    def leave(self) -> int:
        """Going: hand back what is not finished; return how many jobs."""
        ...


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a worker works and how it ends."""

    threads: int = 2
    queue_name: str = JOBS_QUEUE
    drain: Drain = "hand_back"
    drain_seconds: float = 10.0


class Serving:
    """Threads that take wake-ups of one queue."""

    def __init__(self, broker: dramatiq.Broker, *, run: Run, registry: Registry, manner: Manner) -> None:
        self._broker = broker
        self._run = run
        self._registry = registry
        self._manner = manner
        self._worker: dramatiq.Worker | None = None
        self._changed = threading.Condition()
        self._at_work = 0
        self._ending = threading.Event()
        self._beating: threading.Thread | None = None

    def start(self) -> None:
        """Begin to take up work. A second start does nothing."""
        if self._worker is not None:
            return
        self._broker.add_middleware(TraceContext())
        declare(self._broker, run=self._take_up, queue_name=self._manner.queue_name)
        self._ending.clear()
        self._registry.register()
        worker = dramatiq.Worker(
            self._broker,
            worker_threads=self._manner.threads,
            worker_timeout=IDLE_MS,
            queues={self._manner.queue_name},
        )
        # More would sit behind a long job while another worker is idle.
        worker.queue_prefetch = self._manner.threads
        self._worker = worker
        worker.start()
        self._beating = threading.Thread(target=self._beat, name="worker_beat", daemon=True)
        self._beating.start()

    def stop(self, timeout: float | None = None) -> None:
        """Take nothing new, finish or hand back what is under way, wait for the threads. A second stop does nothing."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        self._ending.set()
        seconds = self._manner.drain_seconds if timeout is None else timeout
        if self._manner.drain == "finish":
            # Only here: a consumer that was paused sleeps for seconds before it can end.
            self._pause(worker, is_paused=True)
            with self._changed:
                self._changed.wait_for(lambda: self._at_work == 0, timeout=seconds)
        self._leave()
        worker.stop(timeout=int(seconds * 1000))
        # For a claim that was under way at the first time.
        self._leave()
        if self._beating is not None:
            self._beating.join(BEAT_SECONDS)

    def _take_up(self, job_id: str, generation: int) -> None:
        if self._worker is None:
            # While this process stops, its wake-ups are left to others.
            return
        with self._changed:
            self._at_work += 1
        try:
            self._run(job_id, generation)
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()

    def _leave(self) -> None:
        try:
            self._registry.leave()
        except Exception:
            # Whoever cannot be told finds out by the leases.
            log.exception("worker_not_signed_off")

    def _beat(self) -> None:
        is_draining = False
        while not self._ending.wait(BEAT_SECONDS):
            try:
                drains = self._registry.beat()
            except Exception:
                # A registry that does not answer is no reason to stop working.
                log.warning("worker_beat_failed", exc_info=True)
                continue
            worker = self._worker
            if worker is not None and drains != is_draining:
                is_draining = drains
                log.info("worker_drains" if drains else "worker_takes_up_again")
                self._pause(worker, is_paused=drains)

    @staticmethod
    def _pause(worker: dramatiq.Worker, *, is_paused: bool) -> None:
        """Look for no further messages; threads that work are left alone."""
        for consumer in worker.consumers.values():
            consumer.pause() if is_paused else consumer.resume()


def declare(
    broker: dramatiq.Broker, *, run: Run, queue_name: str = JOBS_QUEUE
) -> "dramatiq.Actor[[str, int], None]":
    """Declare the one actor. The queue's own retries and limits stay off: leases own both."""

    def run_job(job_id: str, generation: int) -> None:
        run(job_id, generation)

    return dramatiq.actor(broker=broker, queue_name=queue_name, actor_name=RUN_JOB)(run_job)


class Part(Protocol):
    """Something that runs until it is stopped."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


def serve_until_told(part: Part) -> None:
    """Run until SIGTERM or SIGINT, then stop with grace; a second signal ends the process at once."""
    told = threading.Event()

    def hear(number: int, _frame: FrameType | None) -> None:
        if told.is_set():
            os._exit(128 + number)
        told.set()

    before = {number: signal.signal(number, hear) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        part.start()
        told.wait()
        part.stop()
    finally:
        for number, handler in before.items():
            with suppress(ValueError):
                signal.signal(number, handler)
