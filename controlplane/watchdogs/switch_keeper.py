"""Switch keeper: enters orders that stand beside the database, and orders again what a kill switch covers and a crash spared."""

from controlplane.handlers import orders, switches
from controlplane.ports import Desk

INTERVAL = 0.5


def run_once(desk: Desk) -> int:
    """Return how many orders were given."""
    return orders.enter(desk) + switches.enforce(desk)
