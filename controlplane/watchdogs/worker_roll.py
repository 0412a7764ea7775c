"""Worker roll: marks workers that are gone, so that nobody counts on them."""

from controlplane.handlers import workers
from controlplane.ports import Desk

INTERVAL = 2.0


def run_once(desk: Desk) -> int:
    return workers.mark_gone(desk)
