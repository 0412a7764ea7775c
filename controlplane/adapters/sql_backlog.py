"""Which jobs are ready, sent or refused. Every look costs as many steps as there are lanes or workers, however many jobs wait."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import schema, schema_access
from controlplane.adapters.driver_sql import DriverSql, Row
from controlplane.domain.queueing import Kind, Lane, Share, counted
from controlplane.ports_queue import Signs, Wake

_JOB, _LEASE, _ORDER, _TENANT = schema.job, schema.lease, schema.control_order, schema_access.tenant
_KIND = (_JOB.c.tenant_id, _JOB.c.model, _JOB.c.sub_model)
_READY = sa.and_(_JOB.c.state == "queued", _JOB.c.desired == "run")
#: States of jobs that may still be under way, and that nobody stops.
_OPEN = ("queued", "leased", "running", "held", "parked")

_SIGNS = DriverSql(
    sa.text(
        """
    SELECT (SELECT min(lane) FROM job WHERE lane IS NOT NULL) AS lane,
      (SELECT min(not_before_ms) FROM job WHERE state = 'parked' AND not_before_ms IS NOT NULL) AS waits_until,
      (SELECT min(dispatched_ms) FROM job WHERE state = 'queued' AND dispatched_ms > 0) AS sent,
      (SELECT max(dispatched_ms) FROM job WHERE state = 'queued' AND dispatched_ms < 0) AS refused
    """
    )
)
#: From one lane to the next through the index, so that it does not matter how many jobs are in each.
_LANES = DriverSql(
    sa.text(
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
)


_KINDS = sa.select(*_KIND, sa.func.count()).group_by(*_KIND)
_BUSY = DriverSql(_KINDS.join_from(_JOB, _LEASE, _LEASE.c.job_id == _JOB.c.job_id))
_SENT = DriverSql(_KINDS.where(_READY, _JOB.c.dispatched_ms > 0))
_SHARE = sa.select(_TENANT.c.tenant_id, _TENANT.c.weight, _TENANT.c.max_jobs, _TENANT.c.is_suspended)
_ONE_SHARE = DriverSql(_SHARE.where(_TENANT.c.tenant_id == sa.bindparam("wanted")))
_MARK_SENT = DriverSql(
    sa.update(_JOB)
    .where(
        _JOB.c.job_id == sa.bindparam("its_id"), _JOB.c.generation == sa.bindparam("its_generation"), _READY
    )
    .values(dispatched_ms=sa.bindparam("sent_ms"), lane=sa.null())
)


def _is_switched() -> sa.ColumnElement[bool]:
    """A kill switch on the job or its task is in force."""
    is_its = sa.or_(
        sa.and_(_ORDER.c.scope_kind == "job", _ORDER.c.scope_id == _JOB.c.job_id),
        sa.and_(_ORDER.c.scope_kind == "task", _ORDER.c.scope_id == _JOB.c.task_id),
    )
    is_for_it = sa.or_(_ORDER.c.tenant_id == "", _ORDER.c.tenant_id == _JOB.c.tenant_id)
    return sa.exists().where(_ORDER.c.released_ms.is_(None), is_its, is_for_it)


_FIRST = (
    sa.select(_JOB.c.job_id, _JOB.c.generation, _JOB.c.traceparent)
    .where(_JOB.c.lane == sa.bindparam("its_lane", type_=_JOB.c.lane.type))
    .order_by(_JOB.c.created_ms, _JOB.c.job_id)
    .limit(sa.bindparam("most", type_=sa.BigInteger))
)
#: By whether jobs that a kill switch covers are left out.
_FIRST_OF = {False: DriverSql(_FIRST), True: DriverSql(_FIRST.where(~_is_switched()))}


class SqlBacklog:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def signs(self) -> Signs:
        ((lane, waits_until, sent, refused),) = _SIGNS.all(self._connection, {})
        return Signs(
            has_ready=lane is not None,
            has_waited=waits_until is not None and waits_until <= self._now_ms,
            oldest_sent_ms=sent,
            oldest_refused_ms=None if refused is None else -refused,
        )

    def lanes(self, *, after: str, most: int, count_to: int) -> list[tuple[Lane, int]]:
        given = {"after": after, "most": most, "count_to": count_to}
        return [(Lane.from_text(lane), ready) for lane, ready in _LANES.all(self._connection, given)]

    def first_of(self, lane: Lane, *, limit: int, spares_switched: bool) -> list[Wake]:
        found = _FIRST_OF[spares_switched].all(self._connection, {"its_lane": lane.text, "most": limit})
        return [
            Wake(job_id=job_id, generation=generation, traceparent=traceparent)
            for job_id, generation, traceparent in found
        ]

    def busy(self) -> Counter[Kind]:
        return _counted(_BUSY.all(self._connection, {}))

    def sent(self) -> Counter[Kind]:
        return _counted(_SENT.all(self._connection, {}))

    def shares(self, tenant_ids: Collection[str]) -> dict[str, Share]:
        if len(tenant_ids) == 1:
            found = _ONE_SHARE.all(self._connection, {"wanted": next(iter(tenant_ids))})
        else:
            query = _SHARE.where(_TENANT.c.tenant_id.in_(tenant_ids))
            found = [tuple(row) for row in self._connection.execute(query)]
        return {
            tenant_id: Share(weight=weight, max_jobs=max_jobs, is_suspended=bool(is_suspended))
            for tenant_id, weight, max_jobs, is_suspended in found
        }

    def mark_sent(self, wakes: Sequence[Wake]) -> None:
        for wake in wakes:
            given = {"its_id": wake.job_id, "its_generation": wake.generation, "sent_ms": self._now_ms}
            _MARK_SENT.one(self._connection, given)

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


def _counted(rows: Iterable[Row]) -> Counter[Kind]:
    return counted((Kind(tenant_id, model, sub_model), jobs) for tenant_id, model, sub_model, jobs in rows)
