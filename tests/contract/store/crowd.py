"""Run as several processes at once: each works on every job of a store until all have ended, and says what it did."""

import json
import sys
from pathlib import Path

from controlplane.adapters.control_file import NoControlFile
from controlplane.adapters.sql_store import SqlStore
from controlplane.domain.identity import EVERY_TENANT
from controlplane.gateway import LocalGateway
from controlplane.handlers.workers import register
from controlplane.ports import Desk, Rules
from controlplane.watchdogs import lease_reaper
from controlplane.watchdogs.dispatcher import Dispatcher, Queue
from tests.integration.controlplane.hands import Hands

LIMIT = 2
JOBS = [f"job-{number}" for number in range(8)]


def a_desk(store: SqlStore) -> Desk:
    """A desk whose tenants may have LIMIT jobs at work."""
    from controlplane.adapters.ids import new_id

    return Desk(
        store=store,
        rules=Rules(tenant_concurrency=LIMIT),
        new_id=new_id,
        is_gone=lambda _: False,
        pid_of=lambda _: 0,
        is_priced=lambda _: True,
        side=NoControlFile(),
    )


def work(store: SqlStore, name: str) -> list[str]:
    """Try everything until nothing is left; return the jobs that were claimed."""
    desk, claimed = a_desk(store), []
    gateway = LocalGateway(desk)
    register(desk, name, host="h", slots=1)
    dispatch = Dispatcher(desk, Queue(send=lambda _: None), holder=name)
    while left := _left(store):
        for job_id in left:
            hands = Hands(gateway=gateway, job_id=job_id, worker_id=name)
            hands.work()
            claimed += [job_id] if hands.claimed else []
            lease_reaper.run_once(desk)
            dispatch.run_once()
    return claimed


def _left(store: SqlStore) -> list[str]:
    with store.read() as tx:
        assert tx.leases.live_of_tenant("local") <= LIMIT
        rows = [tx.jobs.get(job_id, scope=EVERY_TENANT) for job_id in JOBS]
    return [row.state.job_id for row in rows if row is not None and not row.state.is_terminal]


if __name__ == "__main__":
    opened = SqlStore(sys.argv[1] if "://" in sys.argv[1] else Path(sys.argv[1]))
    print(json.dumps(work(opened, f"worker-{sys.argv[2]}")))
    opened.close()
