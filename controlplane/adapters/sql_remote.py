"""Workers of other machines in the store: whose a fence is, and what is wanted of their jobs."""

from collections.abc import Collection

import sqlalchemy as sa

from controlplane.adapters import schema
from controlplane.ports_remote import Mark

_ATTEMPT, _JOB, _LEASE = schema.attempt, schema.job, schema.lease
_COMMAND = schema.command
#: Jobs that one statement asks about.
_AT_ONCE = 500


class SqlRemote:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def holder(self, job_id: str, *, fence: int) -> str | None:
        query = sa.select(_ATTEMPT.c.worker_id).where(_ATTEMPT.c.job_id == job_id, _ATTEMPT.c.fence == fence)
        return self._connection.execute(query).scalar()

    def marks(self, job_ids: Collection[str]) -> dict[str, Mark]:
        wanted, marks = sorted(job_ids), dict[str, Mark]()
        last = sa.select(sa.func.max(_COMMAND.c.command_id)).where(_COMMAND.c.job_id == _JOB.c.job_id)
        query = sa.select(
            _JOB.c.job_id,
            _JOB.c.desired,
            last.scalar_subquery(),
            _LEASE.c.fence,
            _LEASE.c.until_ms > self._now_ms,
        ).select_from(_JOB.outerjoin(_LEASE, _LEASE.c.job_id == _JOB.c.job_id))
        for start in range(0, len(wanted), _AT_ONCE):
            chosen = query.where(_JOB.c.job_id.in_(wanted[start : start + _AT_ONCE]))
            marks |= {found[0]: tuple(found[1:]) for found in self._connection.execute(chosen)}
        return marks
