"""Rows of jobs. Dumb on purpose: what may be written is decided before it comes here."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import schema, words
from controlplane.adapters.driver_sql import DriverSql, Row
from controlplane.adapters.sql_search import search
from controlplane.domain.budget import Account, Amounts, Limits
from controlplane.domain.identity import Scope
from controlplane.domain.job_state import JobState, Parked, Stop
from controlplane.domain.queueing import Kind, Lane
from controlplane.ports import JobFilter, JobKey, JobRow

Columns = sa.RowMapping | Mapping[str, Any]
_JOB = schema.job
_SPEC = schema.job_spec
_THE_JOB = sa.update(_JOB).where(_JOB.c.job_id == sa.bindparam("wanted"))
_GET_SPEC = DriverSql(sa.select(_SPEC.c.spec).where(_SPEC.c.job_id == sa.bindparam("wanted")))
_ADD_TERMS = DriverSql(sa.insert(schema.job_term), ("tenant_id", "term", "created_ms", "job_id"))
_ADD_SPEC = DriverSql(sa.insert(_SPEC), ("job_id", "spec"))
_FIND_JOB = sa.select(_JOB).where(_JOB.c.job_id == sa.bindparam("wanted"))
#: By whether the row is read to decide about it. Foreign keys to a row that is locked so may still be entered.
_GET_JOB = {False: DriverSql(_FIND_JOB), True: DriverSql(_FIND_JOB.with_for_update(key_share=True))}
_SAVE_RECORDED = DriverSql(
    _THE_JOB.values(
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
    "priority",
    "deadline_ms",
    "model",
    "sub_model",
    "traceparent",
)
_ROW_COLUMNS = (
    "spec_digest",
    "created_ms",
    "updated_ms",
    "recorded_ms",
    "tools",
    "progress_ms",
    "refusal",
    "trace_events",
    "trace_head",
    "result",
    "receipt_id",
)
#: What a JobRow fills, in the order of the table. `dispatched_ms` and `lane` are the dispatcher's.
_FILLED = {*_STATE_COLUMNS, *_ROW_COLUMNS, "stop", "account", "tenant_hold", "tenant_settled", "parked"}
_ALL = _JOB.c.keys()
_COLUMNS = [name for name in _ALL if name in _FILLED | {"not_before_ms", "dispatched_ms", "lane"}]
_ADD_JOB = DriverSql(sa.insert(_JOB), _COLUMNS)
_NEVER_CHANGED = frozenset({"job_id", "dispatched_ms", "task_id", "step_id", "tenant_id", "created_ms"})
#: It is in its lane, or on its way to a worker: there it stays while nothing but its other columns changes.
_IS_SAME = sa.and_(
    _JOB.c.generation == sa.bindparam("its_generation"), _JOB.c.state == "queued", _JOB.c.desired == "run"
)
_ITS_LANE = sa.bindparam("its_lane", type_=_JOB.c.lane.type)
_SAVE_JOB = DriverSql(
    _THE_JOB.values(
        {
            **{name: sa.bindparam(name) for name in _COLUMNS if name not in _NEVER_CHANGED},
            "lane": sa.case((_ITS_LANE.is_(None), sa.null()), (_IS_SAME, _JOB.c.lane), else_=_ITS_LANE),
            "dispatched_ms": sa.case((_IS_SAME, _JOB.c.dispatched_ms), else_=0),
        }
    )
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
    columns |= {name: words.kept(columns[name]) for name in ("reason", "refusal")}
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


def _lane_of(state: JobState) -> str | None:
    """Where a job waits for its turn; None: it does not wait for one."""
    if not state.is_ready:
        return None
    return Lane(state.priority, Kind(state.tenant_id, state.model, state.sub_model)).text


def _columns_of(found: Row) -> dict[str, Any]:
    """Columns of a row that the driver gave."""
    columns = dict(zip(_ALL, found, strict=True))
    return {**columns, "reason": words.plain(columns["reason"]), "refusal": words.plain(columns["refusal"])}


def _within(query: sa.Select[Any], scope: Scope) -> sa.Select[Any]:
    return query if scope.tenant_id is None else query.where(_JOB.c.tenant_id == scope.tenant_id)


class SqlJobs:
    def __init__(self, connection: sa.Connection, *, now_ms: int, is_writing: bool) -> None:
        self._connection = connection
        self._now_ms = now_ms
        self._get = _GET_JOB[is_writing]

    def get(self, job_id: str, *, scope: Scope) -> JobRow | None:
        found = self._get.first(self._connection, {"wanted": job_id})
        row = None if found is None else _to_row(_columns_of(found))
        return row if row is not None and scope.covers(row.state.tenant_id) else None

    def spec(self, job_id: str) -> str:
        found = _GET_SPEC.first(self._connection, {"wanted": job_id})
        assert found is not None
        return str(found[0])

    def add(self, row: JobRow, *, spec: str, terms: Sequence[str] = ()) -> None:
        columns = {**_to_columns(row), "dispatched_ms": 0, "lane": _lane_of(row.state)}
        _ADD_JOB.many(self._connection, [tuple(columns[name] for name in _COLUMNS)])
        _ADD_SPEC.many(self._connection, [(row.state.job_id, spec)])
        if terms:
            place = row.created_ms, row.state.job_id
            _ADD_TERMS.many(self._connection, [(row.state.tenant_id, term, *place) for term in terms])

    def save(self, row: JobRow) -> None:
        where = {"wanted": row.state.job_id, "its_generation": row.state.generation}
        _SAVE_JOB.one(self._connection, {**_to_columns(row), **where, "its_lane": _lane_of(row.state)})

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

    def search(
        self, wanted: JobFilter, *, scope: Scope, limit: int, after: JobKey | None
    ) -> tuple[list[JobRow], JobKey | None]:
        hits = search(self._connection, wanted, scope=scope, limit=limit, after=after)
        return [_to_row(found) for found in hits.rows], hits.after

    def of_task(self, task_id: str) -> list[str]:
        query = (
            sa.select(_JOB.c.job_id)
            .where(_JOB.c.task_id == task_id)
            .order_by(_JOB.c.created_ms, _JOB.c.job_id)
        )
        return list(self._connection.execute(query).scalars())

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
