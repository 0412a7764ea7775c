"""Dispatcher: wakes parked jobs whose time has come, sends the wake-ups of the outbox, and again what nobody took up."""

from collections.abc import Callable

from controlplane.crashpoints import crash_here
from controlplane.domain.identity import EVERY_TENANT
from controlplane.handlers import parking
from controlplane.ports import Desk, Wake

INTERVAL = 0.1
_BATCH = 100

#: Puts a wake-up for a job and its generation on the queue.
Send = Callable[[str, int], None]


def run_once(desk: Desk, *, send: Send, only_jobs: frozenset[str] | None = None) -> int:
    """Relay once; return how many wake-ups were sent. A crash in between sends one twice, which is harmless."""
    waited, due, lost = _look(desk, only_jobs)
    if waited:
        for job_id in waited:
            parking.wake(desk, job_id, by="dispatcher")
        _, due, lost = _look(desk, only_jobs)
    wakes = {(wake.job_id, wake.generation) for wake in due} | set(lost)
    if not wakes:
        return 0
    crash_here("dispatch.before_enqueue")
    for job_id, generation in sorted(wakes):
        send(job_id, generation)
    crash_here("dispatch.after_enqueue")
    with desk.store.write("normal") as tx:
        tx.outbox.mark_sent([wake.outbox_id for wake in due])
        for job_id, _ in wakes:
            tx.jobs.mark_dispatched(job_id)
    return len(wakes)


def _look(
    desk: Desk, only_jobs: frozenset[str] | None
) -> tuple[list[str], list[Wake], list[tuple[str, int]]]:
    """Parked jobs whose time has come, wake-ups to send, and ready jobs that nobody took up."""
    with desk.store.read() as tx:
        older_than_ms = tx.now_ms - desk.rules.resend_after_ms
        return (
            tx.jobs.waited_enough(jobs=only_jobs, limit=_BATCH),
            tx.outbox.due(jobs=only_jobs, limit=_BATCH),
            tx.jobs.undispatched(older_than_ms=older_than_ms, jobs=only_jobs, limit=_BATCH),
        )


def wake(desk: Desk, *, send: Send, jobs: frozenset[str]) -> None:
    """Send a wake-up for each of these jobs that is ready, whatever was sent before."""
    with desk.store.read() as tx:
        rows = [tx.jobs.get(job_id, scope=EVERY_TENANT) for job_id in sorted(jobs)]
    for row in rows:
        if row is not None and row.state.is_ready:
            send(row.state.job_id, row.state.generation)
