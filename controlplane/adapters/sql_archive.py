"""Links of chains that went to cold storage: which piece holds which of them. Readers put them before what is in the tables."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import schema
from controlplane.domain.ids import Chain
from controlplane.errors import Tampered, VersionConflict
from controlplane.ports import Cold, Segment
from controlplane.views import TERMINAL

_ARCHIVE, _JOB, _TASK = schema.archive, schema.job, schema.task


@dataclass(frozen=True)
class _Kind:
    """A table whose rows are links, and whose they are."""

    table: sa.Table
    owner: sa.Column[Any]
    columns: tuple[str, ...]


_LINK = ("seq", "kind", "at_ms", "body", "prev", "hash")
_KINDS: dict[Chain, _Kind] = {
    "trace": _Kind(schema.trace_event, schema.trace_event.c.job_id, (*_LINK, "texts")),
    "event": _Kind(schema.event, schema.event.c.task_id, (*_LINK, "actor")),
}
_PIECES = (
    sa.select(_ARCHIVE.c.first_seq, _ARCHIVE.c.last_seq, _ARCHIVE.c.digest)
    .where(
        _ARCHIVE.c.chain == sa.bindparam("chain"),
        _ARCHIVE.c.owner_id == sa.bindparam("owner_id"),
        _ARCHIVE.c.last_seq >= sa.bindparam("start"),
    )
    .order_by(_ARCHIVE.c.first_seq)
)


def archived(
    connection: sa.Connection, cold: Cold, chain: Chain, owner_id: str, *, start: int
) -> Iterator[Mapping[str, Any]]:
    """Links from a number on that are in cold storage, in order; a piece is fetched when its links are asked for."""
    kind = _KINDS[chain]
    pieces = connection.execute(_PIECES, {"chain": chain, "owner_id": owner_id, "start": start}).all()
    for first, last, digest in pieces:
        rows = [json.loads(line) for line in cold.read(digest).splitlines()]
        if [row[0] for row in rows] != list(range(first, last + 1)):
            raise Tampered(
                f"{chain} of {owner_id}: the cold piece {digest} holds other links than {first} to {last}"
            )
        for row in rows[max(0, start - first) :]:
            yield {kind.owner.name: owner_id, **dict(zip(kind.columns, row, strict=True))}


class SqlArchive:
    def __init__(self, connection: sa.Connection, *, now_ms: int) -> None:
        self._connection = connection
        self._now_ms = now_ms

    def due(self, chain: Chain, *, before_ms: int, limit: int) -> list[str]:
        kind = _KINDS[chain]
        owner, ended = (
            (_JOB.c.job_id, _JOB.c.state.in_(sorted(TERMINAL)) & (_JOB.c.updated_ms < before_ms))
            if chain == "trace"
            else (_TASK.c.task_id, (_TASK.c.status != "running") & (_TASK.c.updated_ms < before_ms))
        )
        has_links = sa.exists().where(kind.owner == owner)
        query = sa.select(owner).where(ended, has_links).order_by(owner).limit(limit)
        return list(self._connection.execute(query).scalars())

    def segment(self, chain: Chain, owner_id: str, *, limit: int) -> Segment | None:
        kind = _KINDS[chain]
        columns = [kind.table.c[name] for name in kind.columns]
        query = sa.select(*columns).where(kind.owner == owner_id).order_by(kind.table.c.seq).limit(limit)
        rows = self._connection.execute(query).all()
        if not rows:
            return None
        content = "".join(json.dumps(list(row)) + "\n" for row in rows).encode()
        return Segment(
            chain=chain, owner_id=owner_id, first_seq=rows[0][0], last_seq=rows[-1][0], content=content
        )

    def move(self, segment: Segment, *, digest: str) -> None:
        kind = _KINDS[segment.chain]
        row = {
            "chain": segment.chain,
            "owner_id": segment.owner_id,
            "first_seq": segment.first_seq,
            "last_seq": segment.last_seq,
            "digest": digest,
            "at_ms": self._now_ms,
        }
        self._connection.execute(sa.insert(_ARCHIVE), row)
        within = kind.table.c.seq.between(segment.first_seq, segment.last_seq)
        gone = self._connection.execute(sa.delete(kind.table).where(kind.owner == segment.owner_id, within))
        if gone.rowcount != segment.last_seq - segment.first_seq + 1:
            raise VersionConflict(
                f"{segment.chain} of {segment.owner_id} changed while it went to cold storage"
            )

    def pieces(self, chain: Chain, owner_id: str) -> Sequence[str]:
        given = {"chain": chain, "owner_id": owner_id, "start": 0}
        return [row.digest for row in self._connection.execute(_PIECES, given)]
