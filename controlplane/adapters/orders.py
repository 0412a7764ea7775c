"""What a worker must know between two writes, read by one statement on any database."""

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from controlplane.adapters import words
from controlplane.domain.ids import Fence
from controlplane.domain.lease import Lease
from controlplane.ports import Orders
from rlm_worker.contracts.gateway import Steer

_LEASE_FIELDS = tuple(each.name for each in fields(Lease))
ORDERS = f"""
SELECT job.desired, job.reason, job.budget_version, {{now_ms}},
  coalesce((SELECT max(command_id) FROM command WHERE command.job_id = job.job_id AND command.kind = 'steer'), 0),
  {", ".join(f"lease.{name}" for name in _LEASE_FIELDS)}
FROM job LEFT JOIN lease ON lease.job_id = job.job_id WHERE job.job_id = {{job_id}}"""


def to_orders(
    found: Sequence[Any], *, steer_seen: int, steers: Callable[[], tuple[Steer, ...]]
) -> tuple[Orders, int]:
    """Orders from a row, and the database's time. `steers` is asked only when there are new ones."""
    desired, reason, version, now_ms, last_steer, *lease = found
    held = dict(zip(_LEASE_FIELDS, lease, strict=True))
    return (
        Orders(
            desired=desired,
            reason=words.plain(reason),
            lease=None if lease[0] is None else Lease(**{**held, "fence": Fence(held["fence"])}),
            steers=steers() if last_steer > steer_seen else (),
            budget_version=version,
        ),
        now_ms,
    )
