"""A real process is killed at every named place; the next one finishes, and nothing is lost or done twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.bootstrap import open_app
from controlplane.config import Settings
from controlplane.domain.budget import Account, metered
from controlplane.domain.identity import EVERY_TENANT

STORES = ("sqlite", "postgres")
ROOT = Path(__file__).parents[3]
PLACES = [
    "submit.after_commit",
    "dispatch.before_enqueue",
    "dispatch.after_enqueue",
    "claim.after_commit",
    "record.before_commit",
    "record.after_commit",
    "settle.before_commit",
    "settle.after_commit",
]


def start(settings: Settings, crash_at: str = "") -> int:
    environment = {**os.environ, "CUSTODY_CRASH_AT": crash_at, "PYTHONPATH": str(ROOT)}
    if settings.database_url is not None:
        environment["CUSTODY_DATABASE_URL"] = settings.database_url
    command = [sys.executable, "-m", "tests.integration.controlplane.crashing", str(settings.home)]
    return subprocess.run(command, env=environment, cwd=ROOT, timeout=60, check=False).returncode


@pytest.mark.requirement("S1-QUEUE-2", "S1-QUEUE-4", "LESSON-8")
@pytest.mark.parametrize("place", PLACES)
def test_a_process_killed_at(settings, place):
    assert start(settings, crash_at=place) == -signal.SIGKILL
    assert start(settings) == 0

    app = open_app(settings)
    view = app.job("the-job")
    assert view.state == "succeeded"
    assert view.lease is None
    kinds = [receipt.kind for receipt in app.receipts(view.task_id)]
    assert kinds.count("job_submitted") == kinds.count("result_folded") == 1
    assert kinds.count("job_leased") == view.attempts <= 2
    app.verify_trace("the-job")
    app.verify_receipts(view.task_id)
    check_budgets(app)
    app.close()


def check_budgets(app) -> None:
    """Tenant's budget is what its ledger says, and the job's is what its trace says."""
    with app.store.read() as tx:
        tenant = tx.budgets.get("tenant:local")
        entries = tx.budgets.entries("tenant:local")
        row = tx.jobs.get("the-job", scope=EVERY_TENANT)
        trace = [record.event for record in tx.traces.read("the-job", after=0, limit=1_000)]
    assert [entry.kind for entry in entries] == ["hold", "settle", "release"]
    assert tenant.held == Account().held
    counted = metered(Account(), trace)
    assert tenant.spent == entries[1].amount == row.account.spent == counted.used
