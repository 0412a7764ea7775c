"""Rows of tenant budgets, their ledger, the outbox and steers."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from pydantic import JsonValue

from controlplane.adapters import schema
from controlplane.adapters.driver_sql import DriverSql
from controlplane.domain.budget import Account, Amounts, Limits
from controlplane.ports import LedgerEntry, Wake
from rlm_worker.contracts.gateway import PersonAnswer, Steer

_BUDGET, _LEDGER, _OUTBOX, _COMMAND = schema.budget, schema.ledger, schema.outbox, schema.command
_FIND_BUDGET = sa.select(_BUDGET).where(_BUDGET.c.budget_id == sa.bindparam("wanted"))
#: By whether the row is read to decide about it.
_GET_BUDGET = {False: _FIND_BUDGET, True: _FIND_BUDGET.with_for_update(key_share=True)}
_ADD_BUDGET = DriverSql(sa.insert(_BUDGET), _BUDGET.c.keys(), ending=" ON CONFLICT DO NOTHING")


def _columns(prefix: str, amount: Amounts) -> dict[str, int]:
    return {f"{prefix}_{unit}": value for unit, value in amount._asdict().items()}


def _amounts(prefix: str, found: sa.RowMapping) -> Amounts:
    return Amounts(*(found[f"{prefix}_{unit}"] for unit in Amounts._fields))


def _account_columns(account: Account) -> dict[str, Any]:
    return {
        "limits": json.dumps(asdict(account.limits)),
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
        found = self._connection.execute(self._get, {"wanted": budget_id}).mappings().first()
        if found is None and self._is_writing:
            _ADD_BUDGET.many(self._connection, [(budget_id, *_account_columns(Account()).values())])
            found = self._connection.execute(self._get, {"wanted": budget_id}).mappings().first()
        if found is None:
            return Account()
        return Account(
            limits=Limits(**json.loads(found["limits"])),
            spent=_amounts("spent", found),
            held=_amounts("held", found),
        )

    def save(self, budget_id: str, account: Account) -> None:
        columns = _account_columns(account)
        known = self._connection.execute(
            sa.update(_BUDGET).where(_BUDGET.c.budget_id == budget_id).values(**columns)
        )
        if known.rowcount == 0:
            self._connection.execute(sa.insert(_BUDGET), {"budget_id": budget_id, **columns})

    def set_limits(self, budget_id: str, limits: Limits) -> None:
        account = self.get(budget_id)
        self.save(budget_id, Account(limits=limits, spent=account.spent, held=account.held))

    def enter(self, entry: LedgerEntry) -> None:
        row = {
            "budget_id": entry.budget_id,
            "job_id": entry.job_id,
            "kind": entry.kind,
            "at_ms": self._now_ms,
            **_columns("amount", entry.amount),
        }
        self._connection.execute(sa.insert(_LEDGER), row)

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


class SqlOutbox:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def add(self, job_id: str, *, generation: int) -> None:
        row = {"job_id": job_id, "generation": generation, "at_ms": self._now_ms}
        self._connection.execute(sa.insert(_OUTBOX), row)

    def due(self, *, jobs: frozenset[str] | None, limit: int) -> list[Wake]:
        query = sa.select(_OUTBOX).order_by(_OUTBOX.c.outbox_id).limit(limit)
        if jobs is not None:
            query = query.where(_OUTBOX.c.job_id.in_(jobs))
        return [
            Wake(outbox_id=found["outbox_id"], job_id=found["job_id"], generation=found["generation"])
            for found in self._connection.execute(query).mappings()
        ]

    def mark_sent(self, outbox_ids: Sequence[int]) -> None:
        self._connection.execute(sa.delete(_OUTBOX).where(_OUTBOX.c.outbox_id.in_(outbox_ids)))


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
        query = (
            sa.select(_COMMAND)
            .where(_COMMAND.c.job_id == job_id, _COMMAND.c.kind == "answer")
            .order_by(_COMMAND.c.command_id)
        )
        return tuple(
            PersonAnswer(**json.loads(found["body"]), by=found["by"], answered_ms=found["at_ms"])
            for found in self._connection.execute(query).mappings()
        )
