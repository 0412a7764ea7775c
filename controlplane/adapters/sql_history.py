"""Rows of tasks, their events, receipts and checkpoints. Append-only, but for the head of each chain."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import schema
from controlplane.adapters.driver_sql import DriverSql, Row
from controlplane.adapters.sql_archive import archived
from controlplane.domain.identity import Scope
from controlplane.domain.receipts import Link
from controlplane.domain.task import from_snapshot, snapshot
from controlplane.errors import Tampered, VersionConflict
from controlplane.ports import Checkpoint, Cold, ReceiptRow, TaskRow

_TASK, _EVENT, _RECEIPT, _CHECKPOINT = schema.task, schema.event, schema.receipt, schema.checkpoint
_FIND_TASK = sa.select(_TASK).where(_TASK.c.task_id == sa.bindparam("wanted"))
#: By whether the row is read to decide about it.
_GET_TASK = {False: DriverSql(_FIND_TASK), True: DriverSql(_FIND_TASK.with_for_update(key_share=True))}
_TASK_COLUMNS = _TASK.c.keys()
_ADD_TASK = DriverSql(sa.insert(_TASK), _TASK_COLUMNS)
_SAVE_TASK = DriverSql(
    sa.update(_TASK)
    .where(_TASK.c.task_id == sa.bindparam("wanted"), _TASK.c.version == sa.bindparam("over"))
    .values({name: sa.bindparam(name) for name in _TASK_COLUMNS if name not in ("task_id", "tenant_id")})
)
_LINK = ("task_id", "seq", "kind", "at_ms", "body", "prev", "hash")
_ADD_EVENTS = DriverSql(sa.insert(_EVENT), (*_LINK, "actor"))
_ADD_RECEIPTS = DriverSql(sa.insert(_RECEIPT), (*_LINK, "receipt_id"))
_ADD_CHECKPOINT = DriverSql(sa.insert(_CHECKPOINT), _CHECKPOINT.c.keys())


def _task_columns(row: TaskRow) -> dict[str, Any]:
    return {
        "task_id": row.state.task_id,
        "tenant_id": row.state.tenant_id,
        "status": row.state.status,
        "state": json.dumps(snapshot(row.state)),
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
        row = self._get.first(self._connection, {"wanted": task_id})
        found = {} if row is None else dict(zip(_TASK_COLUMNS, row, strict=True))
        if row is None or not scope.covers(found["tenant_id"]):
            return None
        named = ("version", "event_head", "receipts", "receipt_head", "created_ms", "updated_ms")
        state = from_snapshot(json.loads(found["state"]))
        return TaskRow(state=state, **{name: found[name] for name in named})

    def add(self, row: TaskRow) -> None:
        _ADD_TASK.many(self._connection, [tuple(_task_columns(row).values())])

    def save(self, row: TaskRow, *, version: int) -> None:
        columns = _task_columns(row)
        if _SAVE_TASK.count(self._connection, {**columns, "wanted": row.state.task_id, "over": version}) != 1:
            raise VersionConflict(
                f"task {row.state.task_id} is no longer at version {version}: read it again, then decide"
            )


def _to_link(found: sa.RowMapping | Mapping[str, Any], *, chain: str) -> Link:
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


def _link_columns(task_id: str, link: Link) -> Row:
    return task_id, link.seq, link.kind, link.at_ms, json.dumps(link.body), link.prev, link.hash


class SqlHistory:
    def __init__(self, connection: sa.Connection, *, now_ms: int, cold: Cold) -> None:
        self._connection = connection
        self._now_ms = now_ms
        self._cold = cold

    def append_events(self, task_id: str, links: Sequence[Link], *, actor: str) -> None:
        _ADD_EVENTS.many(self._connection, [(*_link_columns(task_id, link), actor) for link in links])

    def events(self, task_id: str, *, after: int = -1) -> list[Link]:
        query = (
            sa.select(_EVENT).where(_EVENT.c.task_id == task_id, _EVENT.c.seq > after).order_by(_EVENT.c.seq)
        )
        rows: list[sa.RowMapping | Mapping[str, Any]] = list(self._connection.execute(query).mappings())
        if not rows or rows[0]["seq"] != after + 1:
            rows = [*archived(self._connection, self._cold, "event", task_id, start=after + 1), *rows]
        return [_to_link(found, chain=f"events of {task_id}") for found in rows]

    def add_receipts(self, task_id: str, rows: Sequence[ReceiptRow]) -> None:
        columns = [(*_link_columns(task_id, row.link), row.receipt_id) for row in rows]
        _ADD_RECEIPTS.many(self._connection, columns)

    def receipts(self, task_id: str) -> list[ReceiptRow]:
        query = sa.select(_RECEIPT).where(_RECEIPT.c.task_id == task_id).order_by(_RECEIPT.c.seq)
        return [
            ReceiptRow(receipt_id=found["receipt_id"], link=_to_link(found, chain=f"receipts of {task_id}"))
            for found in self._connection.execute(query).mappings()
        ]

    def save_checkpoint(self, task_id: str, checkpoint: Checkpoint) -> None:
        state = json.dumps(checkpoint.state)
        row = (task_id, checkpoint.seq, state, checkpoint.digest, self._now_ms, checkpoint.is_terminal)
        _ADD_CHECKPOINT.many(self._connection, [row])

    def checkpoint(self, task_id: str, *, seq: int | None = None) -> Checkpoint | None:
        query = sa.select(_CHECKPOINT).where(_CHECKPOINT.c.task_id == task_id)
        query = query.where(_CHECKPOINT.c.seq == seq) if seq is not None else query
        query = query.order_by(_CHECKPOINT.c.seq.desc()).limit(1)
        found = self._connection.execute(query).mappings().first()
        return None if found is None else _to_checkpoint(found)

    def checkpoints(self, task_id: str) -> list[Checkpoint]:
        query = sa.select(_CHECKPOINT).where(_CHECKPOINT.c.task_id == task_id).order_by(_CHECKPOINT.c.seq)
        return [_to_checkpoint(found) for found in self._connection.execute(query).mappings()]

    def mark_terminal(self, task_id: str, *, seq: int) -> None:
        self._connection.execute(
            sa.update(_CHECKPOINT)
            .where(_CHECKPOINT.c.task_id == task_id, _CHECKPOINT.c.seq == seq)
            .values(is_terminal=True)
        )

    def expire_checkpoints(self, task_id: str, *, before_ms: int) -> int:
        newest = (
            sa.select(sa.func.max(_CHECKPOINT.c.seq))
            .where(_CHECKPOINT.c.task_id == task_id)
            .scalar_subquery()
        )
        dropped = self._connection.execute(
            sa.delete(_CHECKPOINT).where(
                _CHECKPOINT.c.task_id == task_id,
                _CHECKPOINT.c.at_ms < before_ms,
                _CHECKPOINT.c.is_terminal.is_(False),
                _CHECKPOINT.c.seq != newest,
            )
        )
        return int(dropped.rowcount)


def _to_checkpoint(found: sa.RowMapping) -> Checkpoint:
    named = ("seq", "digest", "at_ms", "is_terminal")
    return Checkpoint(state=json.loads(found["state"]), **{name: found[name] for name in named})
