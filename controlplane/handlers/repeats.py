"""Requests that name a key are carried out once: asked again they get the same answer, whoever died in between.

The key is taken before anything is done, and marked in the transaction that does it. A crash before that leaves a key that
may be taken over; a crash after it one whose answer is lost, which is said and not guessed.
"""

import secrets
from dataclasses import replace

from controlplane.domain.identity import Caller
from controlplane.errors import KeyReused, Stale, UnderWay
from controlplane.ports import Desk, Transaction
from controlplane.ports_access import RepeatedRow

#: Longer than any request takes; then its key may be taken over, and it can no longer finish.
_GIVEN_UP_MS = 60_000
_KEPT_MS = 48 * 3_600_000


def take(desk: Desk, *, caller: Caller, key: str, request_digest: str) -> RepeatedRow:
    """Take a key, or find how its request was answered: then `status` is set."""
    wanted = RepeatedRow(
        tenant_id=caller.scope.tenant_id or "",
        principal=caller.name,
        key=key,
        request_digest=request_digest,
        owner=secrets.token_hex(16),
    )
    with desk.store.write() as tx:
        tx.repeats.purge(before_ms=tx.now_ms - _KEPT_MS)
        known = tx.repeats.get(tenant_id=wanted.tenant_id, principal=wanted.principal, key=key)
        if known is not None:
            _check(known, wanted, now_ms=tx.now_ms)
            if known.status is not None:
                return known
        tx.repeats.put(wanted)
    return wanted


def _check(known: RepeatedRow, wanted: RepeatedRow, *, now_ms: int) -> None:
    if known.request_digest != wanted.request_digest:
        raise KeyReused(
            f"the key {known.key!r} was used for another request: take a new key for a new request"
        )
    if known.status is not None:
        return
    if known.is_done and now_ms - known.at_ms >= _GIVEN_UP_MS:
        raise UnderWay(
            f"the request of key {known.key!r} was carried out, and its answer is lost: look at what it changed",
            is_lost=True,
        )
    if known.is_done or now_ms - known.at_ms < _GIVEN_UP_MS:
        raise UnderWay(f"the request of key {known.key!r} is being carried out: ask again in a moment")


def mark(tx: Transaction, row: RepeatedRow) -> None:
    """In the transaction that does it: what was asked for is done with its commit."""
    if not tx.repeats.mark_done(row):
        raise Stale(f"the request of key {row.key!r} was taken over by another, which carries it out")


def keep(desk: Desk, row: RepeatedRow, *, status: int, body: str) -> None:
    """Keep the answer."""
    with desk.store.write() as tx:
        tx.repeats.answer(replace(row, status=status, body=body))


def give_back(desk: Desk, row: RepeatedRow) -> None:
    """Nothing was done: the same key may be used again."""
    with desk.store.write() as tx:
        tx.repeats.drop(row)
