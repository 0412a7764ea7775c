"""Receipts: a hash chain per task, so that a change of any proof is found and its place is named."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from controlplane.errors import Tampered
from rlm_worker.contracts import digest

GENESIS = "0" * 64

#: Acts of the control plane that leave a receipt beside their event.
RECEIPTED = frozenset(
    {
        "job_submitted",
        "job_leased",
        "lease_lost",
        "lease_released",
        "job_dead_lettered",
        "job_stop_requested",
        "job_stop_observed",
        "job_stop_verified",
        "job_stop_unverified",
        "job_resumed",
        "job_pause_lifted",
        "job_retuned",
        "job_retried",
        "job_completed_by_hand",
        "job_stuck",
        "job_parked",
        "job_unparked",
        "job_steered",
        "job_answered",
        "job_forked",
        "job_imported",
        "late_write_rejected",
        "result_folded",
        "task_rebuilt",
    }
)


@dataclass(frozen=True, kw_only=True)
class Link:
    """One link of a chain of task events or receipts."""

    seq: int
    kind: str
    at_ms: int
    body: dict[str, Any]
    prev: str
    hash: str


def link(*, stream: str, seq: int, at_ms: int, body: dict[str, Any], prev: str, kind: str) -> Link:
    """Append to the chain of `stream` that ends in `prev`."""
    mark = digest([stream, seq, kind, at_ms, body, prev])
    return Link(seq=seq, kind=kind, at_ms=at_ms, body=body, prev=prev, hash=mark)


def verify(links: Iterable[Link], *, stream: str, length: int, head: str) -> None:
    """Raise Tampered at the first link that does not follow from the one before it, or when the end is missing."""
    seq, prev = 0, GENESIS
    for found in links:
        expected = link(
            stream=stream, seq=seq, at_ms=found.at_ms, body=found.body, prev=prev, kind=found.kind
        )
        if found != expected:
            raise Tampered(f"{stream}, link {seq} ({found.kind}): its content or order was changed")
        seq, prev = seq + 1, found.hash
    if seq != length or prev != head:
        raise Tampered(f"{stream}: {length} links were written, the chain holds only up to link {seq}")
