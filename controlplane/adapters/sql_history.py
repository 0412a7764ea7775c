"""Rows of tasks, their events, receipts and checkpoints. Append-only, but for the head of each chain."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import schema
from controlplane.domain.identity import Scope
from controlplane.domain.receipts import Link
from controlplane.domain.task import Step, TaskState
from controlplane.errors import Tampered, VersionConflict
from controlplane.ports import ReceiptRow, TaskRow

_TASK, _EVENT, _RECEIPT, _CHECKPOINT = schema.task, schema.event, schema.receipt, schema.checkpoint
_FIND_TASK = sa.select(_TASK).where(_TASK.c.task_id == sa.bindparam("wanted"))
#: By whether the row is read to decide about it.
_GET_TASK = {False: _FIND_TASK, True: _FIND_TASK.with_for_update(key_share=True)}


def task_to_json(state: TaskState) -> dict[str, Any]:
    body = asdict(state)
    return {**body, "steps": list(body["steps"]), "folded": list(body["folded"])}


def task_from_json(body: dict[str, Any]) -> TaskState:
    steps = tuple(Step(**step) for step in body["steps"])
    return TaskState(**{**body, "steps": steps, "folded": tuple(body["folded"])})


def _task_columns(row: TaskRow) -> dict[str, Any]:
    return {
        "task_id": row.state.task_id,
        "tenant_id": row.state.tenant_id,
        "status": row.state.status,
        "state": json.dumps(task_to_json(row.state)),
        "version": row.version,
        "event_head": row.event_head,
        "receipts": row.receipts,
        "receipt_head": row.receipt_head,
        "created_ms": row.created_ms,
        "updated_ms": row.updated_ms,
    }


class SqlTasks:
    def __init__(self, connection: sa.Connection, *, is_writing: bool) -> None:
        self._connection = connection
        self._get = _GET_TASK[is_writing]

    def get(self, task_id: str, *, scope: Scope) -> TaskRow | None:
        found = self._connection.execute(self._get, {"wanted": task_id}).mappings().first()
        if found is None or not scope.covers(found["tenant_id"]):
            return None
        named = ("version", "event_head", "receipts", "receipt_head", "created_ms", "updated_ms")
        return TaskRow(
            state=task_from_json(json.loads(found["state"])), **{name: found[name] for name in named}
        )

    def add(self, row: TaskRow) -> None:
        self._connection.execute(sa.insert(_TASK), _task_columns(row))

    def save(self, row: TaskRow, *, version: int) -> None:
        saved = self._connection.execute(
            sa.update(_TASK)
            .where(_TASK.c.task_id == row.state.task_id, _TASK.c.version == version)
            .values(**_task_columns(row))
        )
        if saved.rowcount != 1:
            raise VersionConflict(
                f"task {row.state.task_id} is no longer at version {version}: read it again, then decide"
            )


def _to_link(found: sa.RowMapping, *, chain: str) -> Link:
    try:
        body = json.loads(found["body"])
    except ValueError as error:
        raise Tampered(f"{chain}, link {found['seq']} ({found['kind']}): its text was changed") from error
    return Link(
        seq=found["seq"],
        kind=found["kind"],
        at_ms=found["at_ms"],
        body=body,
        prev=found["prev"],
        hash=found["hash"],
    )


def _link_columns(task_id: str, link: Link) -> dict[str, Any]:
    return {**asdict(link), "task_id": task_id, "body": json.dumps(link.body)}


class SqlHistory:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def append_events(self, task_id: str, links: Sequence[Link], *, actor: str) -> None:
        rows = [{**_link_columns(task_id, link), "actor": actor} for link in links]
        self._connection.execute(sa.insert(_EVENT), rows)

    def events(self, task_id: str, *, after: int = -1) -> list[Link]:
        query = (
            sa.select(_EVENT).where(_EVENT.c.task_id == task_id, _EVENT.c.seq > after).order_by(_EVENT.c.seq)
        )
        return [
            _to_link(found, chain=f"events of {task_id}")
            for found in self._connection.execute(query).mappings()
        ]

    def add_receipts(self, task_id: str, rows: Sequence[ReceiptRow]) -> None:
        columns = [{**_link_columns(task_id, row.link), "receipt_id": row.receipt_id} for row in rows]
        self._connection.execute(sa.insert(_RECEIPT), columns)

    def receipts(self, task_id: str) -> list[ReceiptRow]:
        query = sa.select(_RECEIPT).where(_RECEIPT.c.task_id == task_id).order_by(_RECEIPT.c.seq)
        return [
            ReceiptRow(receipt_id=found["receipt_id"], link=_to_link(found, chain=f"receipts of {task_id}"))
            for found in self._connection.execute(query).mappings()
        ]

    def save_checkpoint(self, task_id: str, *, seq: int, state: dict[str, Any], digest: str) -> None:
        row = {
            "task_id": task_id,
            "seq": seq,
            "state": json.dumps(state),
            "digest": digest,
            "at_ms": self._now_ms,
        }
        self._connection.execute(sa.insert(_CHECKPOINT), row)

    def checkpoint(self, task_id: str) -> tuple[int, dict[str, Any], str] | None:
        query = (
            sa.select(_CHECKPOINT)
            .where(_CHECKPOINT.c.task_id == task_id)
            .order_by(_CHECKPOINT.c.seq.desc())
            .limit(1)
        )
        found = self._connection.execute(query).mappings().first()
        return None if found is None else (found["seq"], json.loads(found["state"]), found["digest"])
