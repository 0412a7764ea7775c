"""Deadline keeper: ends jobs whose deadline has passed, the waiting ones at once, those at work with the grace of a stop."""

from controlplane.handlers import deadlines
from controlplane.ports import Desk

INTERVAL = 0.5
_BATCH = 100


def run_once(desk: Desk) -> int:
    """Look once; return how many jobs were ended or told to end."""
    with desk.store.read() as tx:
        overdue = tx.backlog.overdue(limit=_BATCH)
    return sum(deadlines.end(desk, job_id) for job_id in overdue)
