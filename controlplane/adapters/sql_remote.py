"""Workers of other machines in the store: who they are, whose a fence is, what is ready for them, what is wanted of their jobs."""

from collections.abc import Collection
from dataclasses import asdict

import sqlalchemy as sa

from controlplane.adapters import schema
from controlplane.domain.identity import Scope
from controlplane.remote_ports import Mark, ReadyJob, WorkerFacts

_WORKER, _ATTEMPT, _JOB, _LEASE = schema.worker, schema.attempt, schema.job, schema.lease
_COMMAND = schema.command
#: Jobs that one statement asks about.
_AT_ONCE = 500


class SqlRemote:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def enlist(self, facts: WorkerFacts) -> bool:
        columns = {**asdict(facts), "last_seen_ms": self._now_ms}
        known = self._connection.execute(
            sa.update(_WORKER).where(_WORKER.c.worker_id == facts.worker_id).values(**columns)
        )
        if known.rowcount == 0:
            self._connection.execute(sa.insert(_WORKER), {**columns, "first_seen_ms": self._now_ms})
        return self.is_draining(facts.worker_id)

    def is_draining(self, worker_id: str) -> bool:
        query = sa.select(_WORKER.c.is_draining).where(_WORKER.c.worker_id == worker_id)
        return bool(self._connection.execute(query).scalar())

    def holder(self, job_id: str, *, fence: int) -> str | None:
        query = sa.select(_ATTEMPT.c.worker_id).where(_ATTEMPT.c.job_id == job_id, _ATTEMPT.c.fence == fence)
        return self._connection.execute(query).scalar()

    def ready(self, *, scope: Scope, limit: int) -> list[ReadyJob]:
        query = (
            sa.select(_JOB.c.job_id, _JOB.c.generation, _JOB.c.tenant_id)
            .where(_JOB.c.state == "queued", _JOB.c.desired == "run")
            .order_by(_JOB.c.priority.desc(), _JOB.c.created_ms, _JOB.c.job_id)
            .limit(limit)
        )
        if scope.tenant_id is not None:
            query = query.where(_JOB.c.tenant_id == scope.tenant_id)
        return [
            ReadyJob(job_id=found.job_id, generation=found.generation, tenant_id=found.tenant_id)
            for found in self._connection.execute(query)
        ]

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
