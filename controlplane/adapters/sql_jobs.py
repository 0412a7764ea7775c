"""Rows of jobs, leases and attempts. Dumb on purpose: what may be written is decided before it comes here."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import schema
from controlplane.adapters.driver_sql import DriverSql
from controlplane.domain.budget import Account, Amounts, Limits
from controlplane.domain.identity import Scope
from controlplane.domain.ids import Fence
from controlplane.domain.job_state import JobState, Parked, Stop
from controlplane.domain.lease import Lease
from controlplane.ports import JobRow

Columns = sa.RowMapping | Mapping[str, Any]
_JOB, _LEASE, _ATTEMPT, _WORKER = schema.job, schema.lease, schema.attempt, schema.worker
_SAVE_JOB = sa.update(_JOB).where(_JOB.c.job_id == sa.bindparam("wanted"))
_GET_JOB = DriverSql(sa.select(_JOB).where(_JOB.c.job_id == sa.bindparam("wanted")))
_GET_LEASE = DriverSql(sa.select(_LEASE).where(_LEASE.c.job_id == sa.bindparam("wanted")))
_SAVE_RECORDED = DriverSql(
    _SAVE_JOB.values(
        account=sa.bindparam("account"),
        trace_events=sa.bindparam("trace_events"),
        trace_head=sa.bindparam("trace_head"),
        updated_ms=sa.bindparam("updated_ms"),
        recorded_ms=sa.bindparam("recorded_ms"),
    )
)
_STATE_COLUMNS = (
    "job_id",
    "task_id",
    "step_id",
    "tenant_id",
    "max_attempts",
    "state",
    "desired",
    "reason",
    "generation",
    "attempts",
    "losses",
    "fence",
    "is_leased",
    "budget_version",
    "settled_fence",
    "result_digest",
)
_ROW_COLUMNS = (
    "spec_digest",
    "created_ms",
    "updated_ms",
    "recorded_ms",
    "model",
    "sub_model",
    "tools",
    "progress_ms",
    "refusal",
    "trace_events",
    "trace_head",
    "result",
    "receipt_id",
)


class _Accounts:
    """The last accounts that were saved, by their text: an account is a value, so that it does not matter who saved it.

    With hundreds of open holds the text is long, and the next group of a job meets the account that the last one left.
    """

    _MOST = 64

    def __init__(self) -> None:
        self._known: dict[str, Account] = {}

    def text(self, account: Account) -> str:
        text = account_to_text(account)
        if len(self._known) >= self._MOST:
            self._known = {}
        self._known[text] = account
        return text

    def read(self, text: str) -> Account:
        return self._known.get(text) or account_from_text(text)


_ACCOUNTS = _Accounts()


def account_to_text(account: Account) -> str:
    limits = account.limits
    return json.dumps(
        {
            "limits": [
                limits.subcalls,
                limits.input_tokens,
                limits.output_tokens,
                limits.tokens,
                limits.cost_nano_usd,
            ],
            "spent": account.spent,
            "held": account.held,
            "open": [[ordinal, *amount] for ordinal, amount in account.open.items()],
            "is_priced": account.is_priced,
            "iterations": account.iterations,
            "host_calls": account.host_calls,
        }
    )


def account_from_text(text: str) -> Account:
    body = json.loads(text)
    names = ("subcalls", "input_tokens", "output_tokens", "tokens", "cost_nano_usd")
    return Account(
        limits=Limits(**dict(zip(names, body["limits"], strict=True))),
        spent=Amounts(*body["spent"]),
        held=Amounts(*body["held"]),
        open={entry[0]: Amounts(*entry[1:]) for entry in body["open"]},
        is_priced=body["is_priced"],
        iterations=body["iterations"],
        host_calls=body["host_calls"],
    )


def _stop_from_text(text: str | None) -> Stop | None:
    if text is None:
        return None
    body = json.loads(text)
    return Stop(**{**body, "survivors": tuple(body["survivors"])})


def _parked_columns(parked: Parked | None) -> dict[str, Any]:
    if parked is None:
        return {"parked": None, "not_before_ms": None}
    said = {"reason": parked.reason, "detail": parked.detail}
    return {"parked": json.dumps(said), "not_before_ms": parked.not_before_ms}


def _parked_from(found: Columns) -> Parked | None:
    if found["parked"] is None:
        return None
    return Parked(**json.loads(found["parked"]), not_before_ms=found["not_before_ms"])


def _to_columns(row: JobRow) -> dict[str, Any]:
    columns = {name: getattr(row.state, name) for name in _STATE_COLUMNS}
    columns |= {name: getattr(row, name) for name in _ROW_COLUMNS}
    columns["stop"] = None if row.state.stop is None else json.dumps(asdict(row.state.stop))
    columns["account"] = account_to_text(row.account)
    columns["tenant_hold"] = None if row.tenant_hold is None else json.dumps(row.tenant_hold)
    columns["tenant_settled"] = json.dumps(row.tenant_settled)
    columns |= _parked_columns(row.state.parked)
    return columns


def _to_row(found: Columns) -> JobRow:
    columns = {name: found[name] for name in _STATE_COLUMNS}
    state = JobState(
        **{**columns, "is_leased": bool(found["is_leased"])},
        stop=_stop_from_text(found["stop"]),
        parked=_parked_from(found),
    )
    return JobRow(
        state=state,
        **{name: found[name] for name in _ROW_COLUMNS},
        account=_ACCOUNTS.read(found["account"]),
        tenant_hold=None if found["tenant_hold"] is None else Amounts(*json.loads(found["tenant_hold"])),
        tenant_settled=Amounts(*json.loads(found["tenant_settled"] or "[]")),
    )


def _within(query: sa.Select[Any], scope: Scope) -> sa.Select[Any]:
    return query if scope.tenant_id is None else query.where(_JOB.c.tenant_id == scope.tenant_id)


class SqlJobs:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def get(self, job_id: str, *, scope: Scope) -> JobRow | None:
        found = _GET_JOB.first(self._connection, {"wanted": job_id})
        row = None if found is None else _to_row(dict(zip(_JOB.c.keys(), found, strict=True)))
        return row if row is not None and scope.covers(row.state.tenant_id) else None

    def spec(self, job_id: str) -> str:
        query = sa.select(schema.job_spec.c.spec).where(schema.job_spec.c.job_id == job_id)
        spec: str = self._connection.execute(query).scalar_one()
        return spec

    def add(self, row: JobRow, *, spec: str) -> None:
        self._connection.execute(sa.insert(_JOB), {**_to_columns(row), "dispatched_ms": 0})
        self._connection.execute(sa.insert(schema.job_spec), {"job_id": row.state.job_id, "spec": spec})

    def save(self, row: JobRow) -> None:
        columns = _to_columns(row)
        self._connection.execute(_SAVE_JOB, {**columns, "wanted": columns.pop("job_id")})

    def save_recorded(self, row: JobRow) -> None:
        columns = {
            "wanted": row.state.job_id,
            "account": _ACCOUNTS.text(row.account),
            "trace_events": row.trace_events,
            "trace_head": row.trace_head,
            "updated_ms": row.updated_ms,
            "recorded_ms": row.recorded_ms,
        }
        _SAVE_RECORDED.one(self._connection, columns)

    def with_prefix(self, prefix: str, *, scope: Scope, limit: int) -> list[str]:
        query = sa.select(_JOB.c.job_id).where(_JOB.c.job_id.startswith(prefix, autoescape=True)).limit(limit)
        return list(self._connection.execute(_within(query, scope)).scalars())

    def latest(self, *, scope: Scope, limit: int, state: str | None, before: str | None) -> list[JobRow]:
        query = _within(sa.select(_JOB), scope)
        query = query.order_by(_JOB.c.created_ms.desc(), _JOB.c.job_id.desc()).limit(limit)
        if state is not None:
            query = query.where(_JOB.c.state == state)
        if before is not None:
            mark = sa.select(_JOB.c.created_ms).where(_JOB.c.job_id == before).scalar_subquery()
            query = query.where(
                sa.tuple_(_JOB.c.created_ms, _JOB.c.job_id) < sa.tuple_(mark, sa.literal(before))
            )
        return [_to_row(found) for found in self._connection.execute(query).mappings()]

    def of_task(self, task_id: str) -> list[str]:
        query = (
            sa.select(_JOB.c.job_id)
            .where(_JOB.c.task_id == task_id)
            .order_by(_JOB.c.created_ms, _JOB.c.job_id)
        )
        return list(self._connection.execute(query).scalars())

    def undispatched(
        self, *, older_than_ms: int, jobs: frozenset[str] | None, limit: int
    ) -> list[tuple[str, int]]:
        query = (
            sa.select(_JOB.c.job_id, _JOB.c.generation)
            .where(
                _JOB.c.state == "queued",
                _JOB.c.desired == "run",
                _JOB.c.dispatched_ms < older_than_ms,
            )
            .order_by(_JOB.c.dispatched_ms)
            .limit(limit)
        )
        if jobs is not None:
            query = query.where(_JOB.c.job_id.in_(jobs))
        return [(found.job_id, found.generation) for found in self._connection.execute(query)]

    def waited_enough(self, *, jobs: frozenset[str] | None, limit: int) -> list[str]:
        query = (
            sa.select(_JOB.c.job_id)
            .where(_JOB.c.state == "parked", _JOB.c.not_before_ms <= self._now_ms)
            .order_by(_JOB.c.not_before_ms)
            .limit(limit)
        )
        if jobs is not None:
            query = query.where(_JOB.c.job_id.in_(jobs))
        return list(self._connection.execute(query).scalars())

    def mark_dispatched(self, job_id: str) -> None:
        self._connection.execute(
            sa.update(_JOB).where(_JOB.c.job_id == job_id).values(dispatched_ms=self._now_ms)
        )


LEASE_FIELDS = tuple(each.name for each in fields(Lease))


def to_lease(found: Columns) -> Lease:
    return Lease(**{**found, "fence": Fence(found["fence"])})


class SqlLeases:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def get(self, job_id: str) -> Lease | None:
        found = _GET_LEASE.first(self._connection, {"wanted": job_id})
        return None if found is None else to_lease(dict(zip(_LEASE.c.keys(), found, strict=True)))

    def put(self, lease: Lease) -> None:
        self._connection.execute(sa.insert(_LEASE), asdict(lease))
        row = {
            "job_id": lease.job_id,
            "attempt": lease.attempt,
            "fence": lease.fence,
            "worker_id": lease.worker_id,
            "granted_ms": lease.granted_ms,
            "ended_ms": None,
            "outcome": "open",
        }
        self._connection.execute(sa.insert(_ATTEMPT), row)

    def extend(self, job_id: str, *, fence: int, until_ms: int) -> None:
        self._connection.execute(
            sa.update(_LEASE)
            .where(_LEASE.c.job_id == job_id, _LEASE.c.fence == fence)
            .values(until_ms=until_ms, renewed_ms=self._now_ms)
        )

    def drop(self, job_id: str, *, outcome: str, ended_ms: int) -> None:
        self._connection.execute(sa.delete(_LEASE).where(_LEASE.c.job_id == job_id))
        self._connection.execute(
            sa.update(_ATTEMPT)
            .where(_ATTEMPT.c.job_id == job_id, _ATTEMPT.c.ended_ms.is_(None))
            .values(ended_ms=ended_ms, outcome=outcome)
        )

    def all(self) -> list[Lease]:
        return [to_lease(found) for found in self._connection.execute(sa.select(_LEASE)).mappings()]

    def live_of_tenant(self, tenant_id: str) -> int:
        query = (
            sa.select(sa.func.count())
            .select_from(_LEASE)
            .where(_LEASE.c.tenant_id == tenant_id, _LEASE.c.until_ms > self._now_ms)
        )
        return self._connection.execute(query).scalar_one()

    def spent_ms(self, job_id: str) -> int:
        length = sa.func.sum(_ATTEMPT.c.ended_ms - _ATTEMPT.c.granted_ms)
        query = sa.select(length).where(_ATTEMPT.c.job_id == job_id, _ATTEMPT.c.ended_ms.is_not(None))
        return self._connection.execute(query).scalar() or 0

    def seen(self, worker_id: str) -> None:
        known = self._connection.execute(
            sa.update(_WORKER).where(_WORKER.c.worker_id == worker_id).values(last_seen_ms=self._now_ms)
        )
        if known.rowcount == 0:
            row = {"worker_id": worker_id, "first_seen_ms": self._now_ms, "last_seen_ms": self._now_ms}
            self._connection.execute(sa.insert(_WORKER), row)
