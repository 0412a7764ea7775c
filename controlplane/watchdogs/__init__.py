"""Watchdogs: what looks after jobs without being asked. Add one to the list and every process that runs watchdogs runs it."""

from collections.abc import Callable
from typing import NamedTuple

from controlplane.ports import Desk
from controlplane.watchdogs import deadline_keeper, lease_reaper, switch_keeper, worker_roll


class Watchdog(NamedTuple):
    """A check, made again and again. Two processes may make it at once."""

    name: str
    run_once: Callable[[Desk], object]
    #: Seconds between two checks.
    interval: float


WATCHDOGS: tuple[Watchdog, ...] = (
    Watchdog("lease_reaper", lease_reaper.run_once, lease_reaper.INTERVAL),
    Watchdog("deadline_keeper", deadline_keeper.run_once, deadline_keeper.INTERVAL),
    Watchdog("switch_keeper", switch_keeper.run_once, switch_keeper.INTERVAL),
    Watchdog("worker_roll", worker_roll.run_once, worker_roll.INTERVAL),
)
