"""Which jobs are ready, sent or refused. Every look costs as many steps as there are lanes or workers, however many jobs wait."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import schema, schema_access
from controlplane.domain.queueing import Kind, Lane, Share, Switch, counted
from controlplane.ports_queue import Signs, Wake

_JOB, _LEASE, _ORDER, _TENANT = schema.job, schema.lease, schema.control_order, schema_access.tenant
_KIND = (_JOB.c.tenant_id, _JOB.c.model, _JOB.c.sub_model)
_READY = sa.and_(_JOB.c.state == "queued", _JOB.c.desired == "run")
#: States of jobs that may still be under way, and that nobody stops.
_OPEN = ("queued", "leased", "running", "held", "parked")

_SIGNS = sa.text(
    """
    SELECT (SELECT min(lane) FROM job WHERE lane IS NOT NULL) AS lane,
      (SELECT min(not_before_ms) FROM job WHERE state = 'parked' AND not_before_ms IS NOT NULL) AS waits_until,
      (SELECT min(dispatched_ms) FROM job WHERE state = 'queued' AND dispatched_ms > 0) AS sent,
      (SELECT max(dispatched_ms) FROM job WHERE state = 'queued' AND dispatched_ms < 0) AS refused
    """
)
#: From one lane to the next through the index, so that it does not matter how many jobs are in each.
_LANES = sa.text(
    """
    WITH RECURSIVE walk(lane) AS (
      SELECT (SELECT min(lane) FROM job WHERE lane > :after)
      UNION ALL
      SELECT (SELECT min(job.lane) FROM job WHERE job.lane > walk.lane) FROM walk WHERE walk.lane IS NOT NULL
    )
    SELECT walk.lane AS lane,
      (SELECT count(*) FROM (SELECT 1 FROM job WHERE job.lane = walk.lane LIMIT :count_to) AS counted) AS ready
    FROM walk WHERE walk.lane IS NOT NULL LIMIT :most
    """
)


class SqlBacklog:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def signs(self) -> Signs:
        found = self._connection.execute(_SIGNS).one()
        return Signs(
            has_ready=found.lane is not None,
            has_waited=found.waits_until is not None and found.waits_until <= self._now_ms,
            oldest_sent_ms=found.sent,
            oldest_refused_ms=None if found.refused is None else -found.refused,
        )

    def lanes(self, *, after: str, most: int, count_to: int) -> list[tuple[Lane, int]]:
        given = {"after": after, "most": most, "count_to": count_to}
        return [(Lane.from_text(row.lane), row.ready) for row in self._connection.execute(_LANES, given)]

    def first_of(self, lane: Lane, *, limit: int, spares_switched: bool) -> list[Wake]:
        query = (
            sa.select(_JOB.c.job_id, _JOB.c.generation, _JOB.c.traceparent)
            .where(_JOB.c.lane == lane.text)
            .order_by(_JOB.c.created_ms, _JOB.c.job_id)
            .limit(limit)
        )
        if spares_switched:
            query = query.where(~_is_switched())
        return [Wake(**row) for row in self._connection.execute(query).mappings()]

    def busy(self) -> Counter[Kind]:
        query = sa.select(*_KIND, sa.func.count().label("jobs")).join(
            _LEASE, _LEASE.c.job_id == _JOB.c.job_id
        )
        return _counted(self._connection.execute(query.group_by(*_KIND)))

    def sent(self) -> Counter[Kind]:
        query = sa.select(*_KIND, sa.func.count().label("jobs")).where(_READY, _JOB.c.dispatched_ms > 0)
        return _counted(self._connection.execute(query.group_by(*_KIND)))

    def switches(self) -> list[Switch]:
        columns = (_ORDER.c.scope_kind, _ORDER.c.scope_id, _ORDER.c.tenant_id, _ORDER.c.reason)
        query = sa.select(*columns).where(_ORDER.c.released_ms.is_(None)).order_by(_ORDER.c.order_id)
        return [Switch(**row) for row in self._connection.execute(query).mappings()]

    def shares(self, tenant_ids: Collection[str]) -> dict[str, Share]:
        query = sa.select(_TENANT).where(_TENANT.c.tenant_id.in_(tenant_ids))
        return {
            row.tenant_id: Share(
                weight=row.weight, max_jobs=row.max_jobs, is_suspended=bool(row.is_suspended)
            )
            for row in self._connection.execute(query)
        }

    def mark_sent(self, wakes: Sequence[Wake]) -> None:
        statement = (
            sa.update(_JOB)
            .where(
                _JOB.c.job_id == sa.bindparam("its_id"),
                _JOB.c.generation == sa.bindparam("its_generation"),
                _READY,
            )
            .values(dispatched_ms=self._now_ms, lane=None)
        )
        given = [{"its_id": wake.job_id, "its_generation": wake.generation} for wake in wakes]
        if given:
            self._connection.execute(statement, given)

    def put_back_lost(self, *, sent_before_ms: int, limit: int) -> int:
        is_lost = sa.and_(_JOB.c.dispatched_ms > 0, _JOB.c.dispatched_ms <= sent_before_ms)
        return self._put_back(is_lost, order=_JOB.c.dispatched_ms, limit=limit)

    def put_back_refused(self, *, refused_before_ms: int, limit: int) -> int:
        is_due = sa.and_(_JOB.c.dispatched_ms < 0, _JOB.c.dispatched_ms >= -refused_before_ms)
        return self._put_back(is_due, order=_JOB.c.dispatched_ms.desc(), limit=limit)

    def refuse(self, job_id: str, *, at_once: bool) -> None:
        if at_once:
            self._put_back(_JOB.c.job_id == job_id, order=_JOB.c.job_id, limit=1)
            return
        change = sa.update(_JOB).where(_JOB.c.job_id == job_id, _READY)
        self._connection.execute(change.values(dispatched_ms=-self._now_ms, lane=None))

    def _put_back(self, which: sa.ColumnElement[bool], *, order: sa.ColumnElement[Any], limit: int) -> int:
        query = sa.select(_JOB.c.job_id, _JOB.c.priority, *_KIND).where(_READY, which)
        found = self._connection.execute(query.order_by(order).limit(limit)).all()
        given = [
            {
                "its_id": row.job_id,
                "its_lane": Lane(row.priority, Kind(row.tenant_id, row.model, row.sub_model)).text,
            }
            for row in found
        ]
        change = sa.update(_JOB).where(_JOB.c.job_id == sa.bindparam("its_id"), _READY)
        if given:
            self._connection.execute(change.values(lane=sa.bindparam("its_lane"), dispatched_ms=0), given)
        return len(given)

    def overdue(self, *, limit: int) -> list[str]:
        query = (
            sa.select(_JOB.c.job_id)
            .where(
                _JOB.c.state.in_(_OPEN),
                _JOB.c.desired.in_(("run", "pause")),
                _JOB.c.deadline_ms <= self._now_ms,
            )
            .order_by(_JOB.c.deadline_ms)
            .limit(limit)
        )
        return list(self._connection.execute(query).scalars())


def _counted(rows: Iterable[sa.Row[Any]]) -> Counter[Kind]:
    return counted((Kind(row.tenant_id, row.model, row.sub_model), row.jobs) for row in rows)


def _is_switched() -> sa.ColumnElement[bool]:
    """A kill switch on the job or its task is in force."""
    is_its = sa.or_(
        sa.and_(_ORDER.c.scope_kind == "job", _ORDER.c.scope_id == _JOB.c.job_id),
        sa.and_(_ORDER.c.scope_kind == "task", _ORDER.c.scope_id == _JOB.c.task_id),
    )
    is_for_it = sa.or_(_ORDER.c.tenant_id == "", _ORDER.c.tenant_id == _JOB.c.tenant_id)
    return sa.exists().where(_ORDER.c.released_ms.is_(None), is_its, is_for_it)
