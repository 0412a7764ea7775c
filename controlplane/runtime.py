"""What runs in a process: a worker, the watchdogs, or both. Wires the worker in, beside bootstrap."""

import secrets
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from hashlib import sha256
from typing import TYPE_CHECKING, Self

from controlplane.adapters import processes
from controlplane.bootstrap import App, model_settings
from controlplane.config import Settings
from controlplane.engine_settings import ENGINE
from controlplane.errors import InvalidRequest, NotFound, Unavailable
from controlplane.handlers import workers
from controlplane.notice import Notice
from controlplane.ports import Desk
from controlplane.ports_queue import Wake
from controlplane.watchdogs import WATCHDOGS, dispatcher, lease_reaper
from controlplane.watchdogs.loop import Loop
from rlm_worker.contracts.gateway import JOBS_QUEUE

if TYPE_CHECKING:
    from controlplane.adapters.sql_broker import SqlBroker
    from rlm_worker.config import WorkerSettings
    from rlm_worker.serving import Registry, Serving, WorkerCard
    from rlm_worker.wakeups import WakeUps

#: Works on one job: claims it, runs it, settles it.
Run = Callable[[str, int], None]
#: W3C trace context for a wake-up whose submitter gave none.
TraceOf = Callable[[Wake], str]


def trace_of_job(wake: Wake) -> str:
    """A trace of the job's own, the same for all its wake-ups."""
    trace, span = sha256(wake.job_id.encode()), sha256(f"{wake.job_id} {wake.generation}".encode())
    return f"00-{trace.hexdigest()[:32]}-{span.hexdigest()[:16]}-01"


def open_broker(app: App, notice: Notice, queue_name: str) -> "WakeUps | SqlBroker":
    """The queue that the settings name: Redis, or a table beside the store. `notice` wakes this process's own consumers of a table."""
    # A process that works on jobs of its own alone needs nobody to carry its wake-ups.
    # Whoever only looks at jobs does not pay for the queue.
    if app.settings.redis_url and queue_name == JOBS_QUEUE:
        from rlm_worker.wakeups import redis_broker  # noqa: PLC0415

        return redis_broker(app.settings.redis_url, namespace=app.settings.redis_namespace)
    from controlplane.adapters.sql_broker import SqlBroker  # noqa: PLC0415

    broker = SqlBroker(app.store.place, notice=notice)
    broker.drop_stale()
    return broker


class LocalRegistry:
    """The roll of workers, for one that opens the store itself."""

    def __init__(self, desk: Desk, worker_id: str, card: "WorkerCard") -> None:
        self._desk = desk
        self._worker_id = worker_id
        self._card = card

    def register(self) -> None:
        card = self._card
        workers.register(
            self._desk, self._worker_id, host=card.host, slots=card.slots, image=card.image, facts=card.facts
        )

    def beat(self) -> bool:
        try:
            return workers.beat(self._desk, self._worker_id)
        except NotFound:
            self.register()
            return False

    def leave(self) -> int:
        return workers.leave(self._desk, self._worker_id)


class WorkerRuntime:
    """A worker and nothing else: who sends it wake-ups runs somewhere."""

    def __init__(
        self,
        app: App,
        *,
        queue_name: str = JOBS_QUEUE,
        slots: int | None = None,
        make_run: Callable[[App, str], Run] | None = None,
        notice: Notice | None = None,
    ) -> None:
        self._app = app
        self._queue_name = queue_name
        self._notice = notice or Notice()
        self._slots = app.settings.worker_threads if slots is None else slots
        self._make_run = make_run or _runner
        self.worker_id = processes.worker_id()
        self._broker: WakeUps | SqlBroker | None = None
        self._serving: Serving | None = None

    def start(self) -> None:
        """Begin to take up work. A second start does nothing."""
        if self._serving is not None:
            return
        from rlm_worker.serving import Manner, Serving  # noqa: PLC0415

        settings = self._app.settings
        self._broker = open_broker(self._app, self._notice, self._queue_name)
        self._serving = Serving(
            self._broker,
            run=self._make_run(self._app, self.worker_id),
            registry=self._registry(),
            manner=Manner(
                threads=settings.worker_threads,
                queue_name=self._queue_name,
                drain="finish" if settings.drain == "finish" else "hand_back",
                drain_seconds=settings.drain_seconds,
            ),
        )
        self._serving.start()

    def _registry(self) -> "Registry":
        from rlm_worker.serving import WorkerCard, facts  # noqa: PLC0415

        settings = self._app.settings
        card = WorkerCard(
            slots=self._slots, image=settings.worker_image, facts=facts(sandbox=settings.sandbox)
        )
        return LocalRegistry(self._app.desk, self.worker_id, card)

    def stop(self, timeout: float | None = None) -> None:
        """Stop taking work, let go of what is not finished, and wait for the threads. A second stop does nothing."""
        serving, self._serving = self._serving, None
        if serving is None:
            return
        serving.stop(timeout)
        assert self._broker is not None
        self._broker.close()


class WatchdogRuntime:
    """The dispatcher and all that looks after jobs, without a worker. Several of them share the work without harm."""

    def __init__(
        self,
        app: App,
        *,
        queue_name: str = JOBS_QUEUE,
        only_jobs: AbstractSet[str] | None = None,
        trace_of: TraceOf = trace_of_job,
        notice: Notice | None = None,
    ) -> None:
        self._app = app
        self._queue_name = queue_name
        self._only_jobs = None if only_jobs is None else frozenset(only_jobs)
        self._trace_of = trace_of
        self._notice = notice or Notice()
        self._broker: WakeUps | SqlBroker | None = None
        self._loops: list[Loop] = []
        self.dispatcher: dispatcher.Dispatcher | dispatcher.Errand | None = None

    @property
    def problem(self) -> str:
        """What hinders it, for whoever asks whether this process is ready; empty: nothing does."""
        found = self.dispatcher
        return found.problem if isinstance(found, dispatcher.Dispatcher) else ""

    def start(self) -> None:
        """Begin to look after jobs. A second start does nothing."""
        if self._broker is not None:
            return
        desk = self._app.desk
        self._broker = open_broker(self._app, self._notice, self._queue_name)
        queue = self._queue(self._broker)
        if self._only_jobs is None:
            holder = f"{secrets.token_hex(4)}@{processes.worker_id()}"
            self.dispatcher = dispatcher.Dispatcher(desk, queue, holder=holder)
        else:
            lease_reaper.run_once(desk)
            self.dispatcher = dispatcher.Errand(desk, queue, self._only_jobs)
        dispatch = Loop(
            "dispatcher",
            self.dispatcher.run_once,
            interval=dispatcher.INTERVAL,
            notice=self._app.store.notice,
        )
        others = [
            Loop(each.name, lambda each=each: each.run_once(desk), interval=each.interval)  # type: ignore[misc]
            for each in WATCHDOGS
        ]
        keeper = self._app.stuck_keeper()
        stuck = Loop(
            "stuck_keeper", lambda: _discard(keeper.run_once()), interval=self._app.settings.stuck_seconds
        )
        self._loops = [dispatch, *others, stuck]
        for loop in self._loops:
            loop.start()

    def _queue(self, broker: "WakeUps | SqlBroker") -> dispatcher.Queue:
        from dramatiq.errors import BrokerError  # noqa: PLC0415

        from rlm_worker.serving import declare  # noqa: PLC0415

        # A broker of its own: declared here, the actor only names where messages go.
        actor = declare(broker, run=_nobody, queue_name=self._queue_name)

        def send(wake: Wake) -> None:
            traceparent = wake.traceparent or self._trace_of(wake)
            try:
                actor.send_with_options(args=(wake.job_id, wake.generation), traceparent=traceparent)
            except BrokerError as error:
                raise Unavailable(f"the queue does not answer: {error}") from error

        def depth() -> int:
            try:
                return broker.depth(self._queue_name)
            except BrokerError as error:
                raise Unavailable(f"the queue does not answer: {error}") from error

        return dispatcher.Queue(send=send, depth=depth)

    def stop(self) -> None:
        """A second stop does nothing."""
        broker, self._broker = self._broker, None
        if broker is None:
            return
        for loop in self._loops:
            loop.stop()
        assert self.dispatcher is not None
        self.dispatcher.stop()
        if self._only_jobs is not None:
            broker.flush(self._queue_name)
        broker.close()


class EmbeddedRuntime:
    """A worker in this process, with the watchdogs it needs. With `only_jobs` it works on these and no others."""

    def __init__(
        self,
        app: App,
        *,
        only_jobs: AbstractSet[str] | None = None,
        make_run: Callable[[App, str], Run] | None = None,
    ) -> None:
        is_common = only_jobs is None
        queue_name = JOBS_QUEUE if is_common else f"{JOBS_QUEUE}.{secrets.token_hex(8)}"
        # A wake-up that is sent here is taken up here without a look at the table in between.
        notice = Notice()
        self._worker = WorkerRuntime(
            app, queue_name=queue_name, slots=None if is_common else 0, make_run=make_run, notice=notice
        )
        self._watchdogs = WatchdogRuntime(app, queue_name=queue_name, only_jobs=only_jobs, notice=notice)
        self.worker_id = self._worker.worker_id

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def problem(self) -> str:
        return self._watchdogs.problem

    def start(self) -> None:
        """Begin to take up work. A second start does nothing."""
        self._worker.start()
        self._watchdogs.start()

    def stop(self, timeout: float | None = None) -> None:
        """Stop taking work, let go of what is not finished, and wait for the threads. A second stop does nothing."""
        self._watchdogs.stop()
        self._worker.stop(timeout)


def _discard(_answer: object) -> None:
    """For callers that have no use for the answer."""


def _nobody(job_id: str, generation: int) -> None:
    raise AssertionError(f"nobody takes up jobs here: {job_id} generation {generation}")


def worker_settings(settings: Settings) -> "WorkerSettings":
    """What an embedded worker is told: everything of the installation that is the engine's."""
    from rlm_worker.config import WorkerSettings  # noqa: PLC0415

    chosen = {name: getattr(settings, name) for name in ENGINE}
    models = model_settings(settings)
    try:
        return WorkerSettings(models=models, **chosen)
    except ValueError as error:
        raise InvalidRequest(str(error)) from error


def _runner(app: App, worker_id: str) -> Run:
    from rlm_worker.actor import Runner  # noqa: PLC0415
    from rlm_worker.job import EvidenceKeeper, Parts  # noqa: PLC0415

    keeper = EvidenceKeeper(seal=app.evidence.seal, changed=app.evidence.changed)
    parts = Parts(
        gateway=app.gateway(),
        worker_id=worker_id,
        settings=worker_settings(app.settings),
        evidence=keeper,
        artifacts=app.settings.artifacts,
    )
    return Runner(parts).run
