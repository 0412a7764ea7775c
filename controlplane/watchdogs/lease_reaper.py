"""Lease reaper: takes leases from workers that did not renew, and at once from those whose process is gone."""

from controlplane.handlers import leases
from controlplane.ports import Desk

INTERVAL = 0.5


def run_once(desk: Desk) -> int:
    """Look at every lease once; return how many were taken."""
    with desk.store.read() as tx:
        now_ms = tx.now_ms
        found = tx.leases.all()
    taken = 0
    for lease in found:
        if desk.is_gone(lease.worker_id):
            leases.lose(desk, lease, reason="its worker process is gone")
        elif not lease.is_live(now_ms):
            leases.lose(desk, lease, reason="its lease was not renewed in time")
        else:
            continue
        taken += 1
    return taken
