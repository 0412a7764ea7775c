"""Rows of tenant budgets, their ledger, steers and answers."""

import json
from dataclasses import asdict

import sqlalchemy as sa
from pydantic import JsonValue

from controlplane.adapters import schema
from controlplane.domain.budget import Account, Amounts, Limits
from controlplane.ports import LedgerEntry
from rlm_worker.contracts.gateway import PersonAnswer, Steer

_BUDGET, _LEDGER, _COMMAND = schema.budget, schema.ledger, schema.command


def _columns(prefix: str, amount: Amounts) -> dict[str, int]:
    return {f"{prefix}_{unit}": value for unit, value in amount._asdict().items()}


def _amounts(prefix: str, found: sa.RowMapping) -> Amounts:
    return Amounts(*(found[f"{prefix}_{unit}"] for unit in Amounts._fields))


class SqlBudgets:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def get(self, budget_id: str) -> Account:
        query = sa.select(_BUDGET).where(_BUDGET.c.budget_id == budget_id)
        found = self._connection.execute(query).mappings().first()
        if found is None:
            return Account()
        return Account(
            limits=Limits(**json.loads(found["limits"])),
            spent=_amounts("spent", found),
            held=_amounts("held", found),
        )

    def save(self, budget_id: str, account: Account) -> None:
        columns = {
            "limits": json.dumps(asdict(account.limits)),
            **_columns("spent", account.spent),
            **_columns("held", account.held),
        }
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
        query = (
            sa.select(_COMMAND.c.command_id, _COMMAND.c.body)
            .where(_COMMAND.c.job_id == job_id, _COMMAND.c.kind == "steer", _COMMAND.c.command_id > seen)
            .order_by(_COMMAND.c.command_id)
        )
        return tuple(
            Steer(steer_id=found.command_id, text=found.body) for found in self._connection.execute(query)
        )


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
