"""Rows of tenant budgets, their ledger, steers and answers."""

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from pydantic import JsonValue

from controlplane.adapters import schema
from controlplane.adapters.driver_sql import DriverSql
from controlplane.adapters.words import plain
from controlplane.domain.budget import Account, Amounts, Limits
from controlplane.ports import LedgerEntry
from rlm_worker.contracts.gateway import PersonAnswer, Steer

_BUDGET, _LEDGER, _COMMAND = schema.budget, schema.ledger, schema.command
_FIND_BUDGET = sa.select(_BUDGET).where(_BUDGET.c.budget_id == sa.bindparam("wanted"))
#: By whether the row is read to decide about it.
_GET_BUDGET = {False: DriverSql(_FIND_BUDGET), True: DriverSql(_FIND_BUDGET.with_for_update(key_share=True))}
_BUDGET_COLUMNS = _BUDGET.c.keys()
_SAVE_BUDGET = DriverSql(
    sa.insert(_BUDGET),
    _BUDGET_COLUMNS,
    ending=" ON CONFLICT (budget_id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _BUDGET_COLUMNS if name != "budget_id"),
)
_LEDGER_COLUMNS = _LEDGER.c.keys()
_ENTER = DriverSql(sa.insert(_LEDGER), [name for name in _LEDGER_COLUMNS if name != "entry_id"])
_OF_JOB = (
    sa.select(_COMMAND).where(_COMMAND.c.job_id == sa.bindparam("wanted")).order_by(_COMMAND.c.command_id)
)
_GET_ANSWERS = DriverSql(_OF_JOB.where(_COMMAND.c.kind == "answer"))
_ADD_BUDGET = DriverSql(sa.insert(_BUDGET), _BUDGET.c.keys(), ending=" ON CONFLICT DO NOTHING")


def _columns(prefix: str, amount: Amounts) -> dict[str, int]:
    return {f"{prefix}_{unit}": value for unit, value in amount._asdict().items()}


def _amounts(prefix: str, found: Mapping[Any, Any]) -> Amounts:
    return Amounts(*(found[f"{prefix}_{unit}"] for unit in Amounts._fields))


def _account_columns(account: Account) -> dict[str, Any]:
    return {
        "limits": json.dumps(vars(account.limits)),
        **_columns("spent", account.spent),
        **_columns("held", account.held),
    }


class SqlBudgets:
    """Whoever reads an account in order to write has it to itself until then, also one that was not there yet."""

    def __init__(self, connection: sa.Connection, *, now_ms: int, is_writing: bool) -> None:
        self._connection = connection
        self._now_ms = now_ms
        self._is_writing = is_writing
        self._get = _GET_BUDGET[is_writing]

    def get(self, budget_id: str) -> Account:
        row = self._get.first(self._connection, {"wanted": budget_id})
        if row is None and self._is_writing:
            _ADD_BUDGET.many(self._connection, [(budget_id, *_account_columns(Account()).values())])
            row = self._get.first(self._connection, {"wanted": budget_id})
        if row is None:
            return Account()
        found = dict(zip(_BUDGET_COLUMNS, row, strict=True))
        return Account(
            limits=Limits(**json.loads(found["limits"])),
            spent=_amounts("spent", found),
            held=_amounts("held", found),
        )

    def save(self, budget_id: str, account: Account) -> None:
        _SAVE_BUDGET.many(self._connection, [(budget_id, *_account_columns(account).values())])

    def set_limits(self, budget_id: str, limits: Limits) -> None:
        account = self.get(budget_id)
        self.save(budget_id, Account(limits=limits, spent=account.spent, held=account.held))

    def enter(self, entry: LedgerEntry) -> None:
        row = (entry.budget_id, entry.job_id, entry.kind, *entry.amount, self._now_ms)
        _ENTER.many(self._connection, [row])

    def entries(self, budget_id: str) -> list[LedgerEntry]:
        query = sa.select(_LEDGER).where(_LEDGER.c.budget_id == budget_id).order_by(_LEDGER.c.entry_id)
        return [
            LedgerEntry(
                budget_id=found["budget_id"],
                job_id=found["job_id"],
                kind=found["kind"],
                amount=_amounts("amount", found),
            )
            for found in self._connection.execute(query).mappings()
        ]


def steers_after(connection: sa.Connection, job_id: str, *, seen: int) -> tuple[Steer, ...]:
    query = (
        sa.select(_COMMAND.c.command_id, _COMMAND.c.body)
        .where(_COMMAND.c.job_id == job_id, _COMMAND.c.kind == "steer", _COMMAND.c.command_id > seen)
        .order_by(_COMMAND.c.command_id)
    )
    return tuple(Steer(steer_id=found.command_id, text=found.body) for found in connection.execute(query))


class SqlSteers:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def add(self, job_id: str, *, text: str, by: str) -> int:
        row = {"job_id": job_id, "kind": "steer", "body": text, "by": by, "at_ms": self._now_ms}
        made = self._connection.execute(sa.insert(_COMMAND).returning(_COMMAND.c.command_id), row)
        steer_id: int = made.scalar_one()
        return steer_id

    def after(self, job_id: str, *, seen: int) -> tuple[Steer, ...]:
        return steers_after(self._connection, job_id, seen=seen)


class SqlAnswers:
    """Answers of people, kept beside the steers."""

    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def add(self, job_id: str, *, question: int, value: JsonValue, by: str) -> None:
        body = json.dumps({"question": question, "value": value})
        row = {"job_id": job_id, "kind": "answer", "body": body, "by": by, "at_ms": self._now_ms}
        self._connection.execute(sa.insert(_COMMAND), row)

    def of(self, job_id: str) -> tuple[PersonAnswer, ...]:
        rows = _GET_ANSWERS.all(self._connection, {"wanted": job_id})
        given = [dict(zip(_COMMAND.c.keys(), row, strict=True)) for row in rows]
        return tuple(
            PersonAnswer(**json.loads(plain(each["body"])), by=each["by"], answered_ms=each["at_ms"])
            for each in given
        )
