"""A worker in this process: the queue, the actor and the watchdogs it needs. Wires the worker in, beside bootstrap."""

import secrets
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Self

from controlplane.adapters import processes
from controlplane.bootstrap import App, model_settings
from controlplane.config import Settings
from controlplane.engine_settings import ENGINE
from controlplane.errors import InvalidRequest
from controlplane.handlers import leases
from controlplane.watchdogs import dispatcher, lease_reaper, switch_keeper
from controlplane.watchdogs.loop import Loop
from rlm_worker.contracts.gateway import JOBS_QUEUE

if TYPE_CHECKING:
    import dramatiq

    from controlplane.adapters.sql_broker import SqlBroker
    from rlm_worker.config import WorkerSettings

#: Works on one job: claims it, runs it, settles it.
Run = Callable[[str, int], None]
#: Milliseconds after which an idle queue is looked at again for wake-ups of other processes.
_IDLE_MS = 50


class EmbeddedRuntime:
    """A worker in this process, with the watchdogs it needs. With `only_jobs` it works on these and no others."""

    def __init__(
        self,
        app: App,
        *,
        only_jobs: AbstractSet[str] | None = None,
        make_run: Callable[[App, str], Run] | None = None,
    ) -> None:
        self._app = app
        self._only_jobs = None if only_jobs is None else frozenset(only_jobs)
        self._make_run = make_run or _runner
        self.worker_id = processes.worker_id()
        self._queue = JOBS_QUEUE if only_jobs is None else f"{JOBS_QUEUE}.{secrets.token_hex(8)}"
        self._broker: SqlBroker | None = None
        self._worker: dramatiq.Worker | None = None
        self._loops: list[Loop] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to take up work. A second start does nothing."""
        if self._worker is not None:
            return
        # Whoever only looks at jobs does not pay for the queue and the worker.
        import dramatiq  # noqa: PLC0415

        from controlplane.adapters.sql_broker import SqlBroker  # noqa: PLC0415
        from rlm_worker.actor import declare  # noqa: PLC0415

        self._broker = SqlBroker(self._app.store.path)
        self._broker.drop_stale()
        run = self._make_run(self._app, self.worker_id)

        def take_up(job_id: str, generation: int) -> None:
            # While this process stops, its wake-ups are left to others.
            if self._worker is not None:
                run(job_id, generation)

        actor = declare(self._broker, run=take_up, queue_name=self._queue)
        threads = self._app.settings.worker_threads
        self._worker = dramatiq.Worker(self._broker, worker_threads=threads, worker_timeout=_IDLE_MS)
        # More would sit behind a long job while another worker is idle.
        self._worker.queue_prefetch = threads
        self._worker.start()
        self._watch(lambda job_id, generation: _discard(actor.send(job_id, generation)))

    def _watch(self, send: dispatcher.Send) -> None:
        desk = self._app.desk
        if self._only_jobs is not None:
            lease_reaper.run_once(desk)
            dispatcher.wake(desk, send=send, jobs=self._only_jobs)
        keeper = self._app.stuck_keeper()
        self._loops = [
            Loop(
                "dispatcher",
                lambda: _discard(dispatcher.run_once(desk, send=send, only_jobs=self._only_jobs)),
                interval=dispatcher.INTERVAL,
                notice=self._app.store.notice,
            ),
            Loop(
                "lease_reaper",
                lambda: _discard(lease_reaper.run_once(desk)),
                interval=lease_reaper.INTERVAL,
            ),
            Loop(
                "switch_keeper",
                lambda: _discard(switch_keeper.run_once(desk)),
                interval=switch_keeper.INTERVAL,
            ),
            Loop(
                "stuck_keeper",
                lambda: _discard(keeper.run_once()),
                interval=self._app.settings.stuck_seconds,
            ),
        ]
        for loop in self._loops:
            loop.start()

    def stop(self, timeout: float | None = None) -> None:
        """Stop taking work, give back what is not finished, and wait for the threads. A second stop does nothing."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        for loop in self._loops:
            loop.stop()
        leases.hand_back(self._app.desk, worker_id=self.worker_id)
        seconds = self._app.settings.drain_seconds if timeout is None else timeout
        worker.stop(timeout=int(seconds * 1000))
        # For a claim that was under way at the first time.
        leases.hand_back(self._app.desk, worker_id=self.worker_id)
        assert self._broker is not None
        if self._only_jobs is not None:
            self._broker.flush(self._queue)
        self._broker.close()


def _discard(_answer: object) -> None:
    """For callers that have no use for the answer."""


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
