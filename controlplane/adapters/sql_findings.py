"""Rows of findings, and the queries that find jobs stuck. Each reads what is under way, never what has ended."""

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import schema
from controlplane.domain.findings import Finding
from controlplane.domain.identity import Scope
from controlplane.ports_control import AgeRow, StuckRow, StuckRules, WorkerAge
from controlplane.views import TERMINAL

_JOB, _LEASE, _FINDING, _ATTEMPT = schema.job, schema.lease, schema.finding, schema.attempt
_AT_WORK = ("leased", "running", "stopping")
_OPEN = ("queued", "held", "parked", *_AT_WORK)
_LIMIT = 1_000


class SqlFindings:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def add(self, finding: Finding) -> None:
        row = {
            "finding_id": finding.finding_id,
            "tenant_id": finding.tenant_id,
            "job_id": finding.job_id,
            "kind": finding.kind,
            "detail": finding.detail,
            "evidence": json.dumps(finding.evidence),
            "action": finding.action,
            "at_ms": finding.at_ms,
            "resolved_ms": finding.resolved_ms,
        }
        self._connection.execute(sa.insert(_FINDING), row)

    def open(self) -> list[Finding]:
        return self._read(sa.select(_FINDING).where(_FINDING.c.resolved_ms.is_(None)))

    def of_job(self, job_id: str) -> list[Finding]:
        return self._read(
            sa.select(_FINDING).where(_FINDING.c.job_id == job_id).order_by(_FINDING.c.finding_id)
        )

    def page(self, *, scope: Scope, limit: int, before_ms: int | None, only_open: bool) -> list[Finding]:
        query = sa.select(_FINDING).order_by(_FINDING.c.at_ms.desc(), _FINDING.c.finding_id.desc())
        if scope.tenant_id is not None:
            query = query.where(_FINDING.c.tenant_id == scope.tenant_id)
        if before_ms is not None:
            query = query.where(_FINDING.c.at_ms < before_ms)
        if only_open:
            query = query.where(_FINDING.c.resolved_ms.is_(None))
        return self._read(query.limit(limit))

    def _read(self, query: sa.Select[Any]) -> list[Finding]:
        return [
            Finding(**{**found, "evidence": json.loads(found["evidence"])})
            for found in self._connection.execute(query).mappings()
        ]

    def no_longer_quarantined(self) -> list[str]:
        query = (
            sa.select(_FINDING.c.finding_id)
            .select_from(_FINDING.join(_JOB, _JOB.c.job_id == _FINDING.c.job_id))
            .where(
                _FINDING.c.kind == "crashed_repeatedly",
                _FINDING.c.resolved_ms.is_(None),
                _JOB.c.state != "quarantined",
            )
        )
        return list(self._connection.execute(query).scalars())

    def resolve(self, finding_ids: Sequence[str]) -> None:
        self._connection.execute(
            sa.update(_FINDING).where(_FINDING.c.finding_id.in_(finding_ids)).values(resolved_ms=self._now_ms)
        )

    def no_progress(self, rules: StuckRules) -> list[StuckRow]:
        """Nothing was recorded under the lease for longer than the job, or the installation, allows."""
        moved = sa.case(
            (_JOB.c.recorded_ms > _LEASE.c.granted_ms, _JOB.c.recorded_ms), else_=_LEASE.c.granted_ms
        )
        allowed = sa.func.coalesce(_JOB.c.progress_ms, rules.progress_ms)
        query = self._leased(moved, allowed_ms=allowed, trace_events=_JOB.c.trace_events)
        return self._rows(query.where(moved + allowed < self._now_ms))

    def _leased(self, since: sa.ColumnElement[int], **facts: sa.ColumnElement[Any]) -> sa.Select[Any]:
        named = [column.label(name) for name, column in facts.items()]
        return sa.select(
            _JOB.c.job_id,
            _JOB.c.tenant_id,
            since.label("since_ms"),
            _LEASE.c.worker_id,
            _LEASE.c.fence,
            *named,
        ).select_from(_LEASE.join(_JOB, _JOB.c.job_id == _LEASE.c.job_id))

    def wait_overdue(self, rules: StuckRules) -> list[StuckRow]:
        """Parked until a time that is long past: whoever should have woken it did not."""
        query = _facts(_JOB.c.not_before_ms, parked=_JOB.c.parked).where(
            _JOB.c.state == "parked", _JOB.c.not_before_ms < self._now_ms - rules.overdue_ms
        )
        return self._rows(query)

    def retries_over(self, rules: StuckRules) -> list[StuckRow]:
        query = _facts(_JOB.c.updated_ms, attempts=_JOB.c.attempts, losses=_JOB.c.losses).where(
            _JOB.c.state.in_(_OPEN),
            sa.or_(
                _JOB.c.losses >= _JOB.c.max_attempts, _JOB.c.attempts >= _JOB.c.max_attempts + rules.attempts
            ),
        )
        return self._rows(query)

    def never_answered(self, rules: StuckRules) -> list[StuckRow]:
        """A call that left, and nothing was recorded since; a person that was asked, without a time to answer by."""
        held = self._leased(_JOB.c.recorded_ms, account=_JOB.c.account).where(
            _JOB.c.recorded_ms > 0, _JOB.c.recorded_ms < self._now_ms - rules.answer_ms
        )
        calls = [row for row in self._rows(held) if _opened(row)]
        asked = _facts(_JOB.c.updated_ms, parked=_JOB.c.parked).where(
            _JOB.c.state == "parked",
            _JOB.c.not_before_ms.is_(None),
            _JOB.c.updated_ms < self._now_ms - rules.person_ms,
        )
        return calls + self._rows(asked)

    def crashed_repeatedly(self, rules: StuckRules) -> list[StuckRow]:  # noqa: ARG002 - every check is asked alike
        """Quarantined, for as long as it is: nobody but an operator brings it back. Those with a finding are known."""
        known = sa.exists().where(
            _FINDING.c.job_id == _JOB.c.job_id,
            _FINDING.c.kind == "crashed_repeatedly",
            _FINDING.c.resolved_ms.is_(None),
        )
        query = _facts(_JOB.c.updated_ms, losses=_JOB.c.losses, reason=_JOB.c.reason)
        return self._rows(query.where(_JOB.c.state == "quarantined", ~known))

    def state_disagrees(self, rules: StuckRules) -> list[StuckRow]:  # noqa: ARG002 - every check is asked alike
        """At work without a lease, or with one and without an attempt under it; a lease on a job that is not at work."""
        live = sa.exists().where(
            _ATTEMPT.c.job_id == _JOB.c.job_id,
            _ATTEMPT.c.fence == _LEASE.c.fence,
            _ATTEMPT.c.ended_ms.is_(None),
        )
        both = _JOB.outerjoin(_LEASE, _LEASE.c.job_id == _JOB.c.job_id)
        no_lease = _facts(_JOB.c.updated_ms, state=_JOB.c.state, fence=_JOB.c.fence).select_from(both)
        at_work = no_lease.where(_JOB.c.state.in_(_AT_WORK), sa.or_(_LEASE.c.job_id.is_(None), ~live))
        left = self._leased(_LEASE.c.granted_ms, state=_JOB.c.state).where(_JOB.c.state.not_in(_AT_WORK))
        return self._rows(at_work) + self._rows(left)

    def never_dispatched(self, rules: StuckRules) -> list[StuckRow]:
        """Ready, and no wake-up was sent for longer than a dispatcher takes."""
        query = _facts(_JOB.c.updated_ms, generation=_JOB.c.generation, refusal=_JOB.c.refusal).where(
            _JOB.c.state == "queued",
            _JOB.c.desired == "run",
            _JOB.c.dispatched_ms == 0,
            _JOB.c.updated_ms < self._now_ms - rules.dispatch_ms,
            sa.or_(_JOB.c.not_before_ms.is_(None), _JOB.c.not_before_ms < self._now_ms - rules.dispatch_ms),
        )
        return self._rows(query)

    def at_work(self) -> list[StuckRow]:
        query = self._leased(_LEASE.c.granted_ms, account=_JOB.c.account, trace_events=_JOB.c.trace_events)
        rows = self._rows(query)
        for row in rows:
            _, into, out, _ = json.loads(row.facts.pop("account"))["spent"]
            row.facts["tokens"] = into + out
        return rows

    def _rows(self, query: sa.Select[Any]) -> list[StuckRow]:
        rows = []
        for found in self._connection.execute(query.limit(_LIMIT)).mappings():
            facts = dict(found)
            named = {name: facts.pop(name) for name in ("job_id", "tenant_id", "since_ms")}
            rows.append(StuckRow(**named, facts=facts))
        return rows


def _facts(since: sa.ColumnElement[Any], **facts: sa.ColumnElement[Any]) -> sa.Select[Any]:
    named = [column.label(name) for name, column in facts.items()]
    return sa.select(_JOB.c.job_id, _JOB.c.tenant_id, since.label("since_ms"), *named)


def _opened(row: StuckRow) -> bool:
    """Whether it has open holds; the rest of the account is no part of the evidence."""
    account = json.loads(row.facts.pop("account"))
    row.facts["open_calls"] = [ordinal for ordinal, *_ in account["open"]]
    return bool(account["open"])


class SqlFigures:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def ages(self, *, scope: Scope) -> list[AgeRow]:
        query = (
            sa.select(_JOB.c.state, sa.func.count(), sa.func.min(_JOB.c.created_ms))
            .where(_JOB.c.state.in_(_OPEN))
            .group_by(_JOB.c.state)
        )
        return [
            AgeRow(state=state, jobs=jobs, oldest_ms=oldest)
            for state, jobs, oldest in self._connection.execute(_within(query, scope))
        ]

    def ended(self, *, scope: Scope, since_ms: int) -> dict[str, int]:
        query = (
            sa.select(_JOB.c.state, sa.func.count().label("jobs"))
            .where(_JOB.c.state.in_(sorted(TERMINAL)), _JOB.c.updated_ms >= since_ms)
            .group_by(_JOB.c.state)
        )
        return {found.state: found.jobs for found in self._connection.execute(_within(query, scope))}

    def retries(self, *, scope: Scope) -> tuple[int, int]:
        query = sa.select(_JOB.c.losses).where(_JOB.c.state.in_(_OPEN), _JOB.c.losses > 0)
        losses = list(self._connection.execute(_within(query, scope)).scalars())
        return len(losses), max(losses, default=0)

    def queue_depth(self) -> int:
        waiting = sa.select(sa.func.count()).select_from(_JOB)
        return self._connection.execute(
            waiting.where(_JOB.c.state == "queued", _JOB.c.desired == "run")
        ).scalar_one()

    def workers(self, *, limit: int) -> list[WorkerAge]:
        worker = schema.worker
        jobs = sa.select(sa.func.count()).where(_LEASE.c.worker_id == worker.c.worker_id).scalar_subquery()
        query = sa.select(
            worker.c.worker_id,
            worker.c.host,
            worker.c.slots,
            worker.c.is_draining,
            worker.c.last_seen_ms,
            jobs.label("jobs"),
        ).order_by(worker.c.last_seen_ms.desc())
        return [
            WorkerAge(**{**found, "is_draining": bool(found["is_draining"])})
            for found in self._connection.execute(query.limit(limit)).mappings()
        ]


def _within(query: sa.Select[Any], scope: Scope) -> sa.Select[Any]:
    return query if scope.tenant_id is None else query.where(_JOB.c.tenant_id == scope.tenant_id)
