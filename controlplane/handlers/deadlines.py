"""Deadlines: a job that has not ended in time is ended, and says so."""

from datetime import UTC, datetime

from controlplane.domain import job
from controlplane.domain.commands import GiveUpJob
from controlplane.domain.identity import EVERY_TENANT, Caller
from controlplane.handlers import control
from controlplane.handlers.apply import end_job, load, result_without_worker
from controlplane.ports import Desk, Transaction

KEEPER = Caller(name="deadline_keeper", scope=EVERY_TENANT, roles=frozenset({"operator"}))


def end(desk: Desk, job_id: str) -> bool:
    """End a job whose deadline has passed: as failed when no worker has it, else by a stop. False: there is nothing to end."""
    with desk.store.write() as tx:
        state = load(tx, job_id, scope=EVERY_TENANT)[0].state
        if state.is_terminal or state.deadline_ms is None or state.deadline_ms > tx.now_ms:
            return False
        is_leased, reason = state.is_leased, f"its deadline passed at {_moment(state.deadline_ms)}"
        if not is_leased:
            _give_up(tx, desk, job_id, reason=reason)
    if is_leased:
        return control.stop(desk, job_id, order="stop", caller=KEEPER, reason=reason)
    desk.store.announce()
    return True


def _give_up(tx: Transaction, desk: Desk, job_id: str, *, reason: str) -> None:
    rows = load(tx, job_id, scope=EVERY_TENANT)
    events = job.decide(rows[0].state, GiveUpJob(failure_class="budget_exhausted"))
    begun = "before it was finished" if rows[0].state.attempts else "before any worker had it"
    message = f"{reason}, {begun}. Ask again with a later one"
    result = result_without_worker(
        tx, rows[0], status="failed", failure_class="budget_exhausted", message=message
    )
    end_job(tx, desk, rows=rows, events=events, result=result, actor=KEEPER.name)


def _moment(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, tz=UTC):%Y-%m-%d %H:%M:%S} UTC"
