"""Cooling: old links of chains leave the tables for cold storage, once it is proved that they can be read back from there."""

from dataclasses import dataclass
from datetime import timedelta

from controlplane.crashpoints import crash_here
from controlplane.domain.identity import Caller
from controlplane.domain.ids import Chain
from controlplane.errors import VersionConflict
from controlplane.handlers.permits import require
from controlplane.ports import Desk

#: Links of one piece: whoever reads one of them fetches all of these.
PIECE = 2_000
_BATCH = 200


@dataclass(frozen=True, kw_only=True)
class Cooled:
    """What went to cold storage."""

    pieces: int = 0
    links: int = 0


def cool(desk: Desk, *, older_than: timedelta, caller: Caller) -> Cooled:
    """Move the traces of jobs and the events of tasks that ended before this time. Done again it goes on where it stopped."""
    with desk.store.read() as tx:
        require(tx, caller, "tenant.manage", tenant_id=caller.scope.tenant_id or "")
    pieces = links = 0
    chains: tuple[Chain, ...] = ("trace", "event")
    for chain in chains:
        # Those that are done are not found again, those that somebody else is doing are left to them.
        while owners := _due(desk, chain, older_than):
            moved = [count for owner_id in owners for count in _cool_one(desk, chain, owner_id)]
            pieces, links = pieces + len(moved), links + sum(moved)
            if not moved:
                break
    return Cooled(pieces=pieces, links=links)


def _due(desk: Desk, chain: Chain, older_than: timedelta) -> list[str]:
    with desk.store.read() as tx:
        before_ms = tx.now_ms - int(older_than.total_seconds() * 1000)
        return tx.archive.due(chain, before_ms=before_ms, limit=_BATCH)


def _cool_one(desk: Desk, chain: Chain, owner_id: str) -> list[int]:
    """Piece by piece, oldest first: what is in the tables always continues what is not."""
    moved: list[int] = []
    while True:
        with desk.store.read() as tx:
            segment = tx.archive.segment(chain, owner_id, limit=PIECE)
        if segment is None:
            return moved
        crash_here("cool.before_blob")
        digest = desk.store.cold.keep(segment.content)
        crash_here("cool.after_blob")
        try:
            with desk.store.write() as tx:
                tx.archive.move(segment, digest=digest)
                crash_here("cool.before_delete")
        except VersionConflict:
            return moved
        crash_here("cool.after_delete")
        moved.append(segment.last_seq - segment.first_seq + 1)
