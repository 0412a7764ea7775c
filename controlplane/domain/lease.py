"""Leases: who may write for a job, and until when. Times are given by the caller and come from one clock."""

from dataclasses import dataclass, replace

from controlplane.domain.ids import Fence
from controlplane.errors import FenceStale


@dataclass(frozen=True, kw_only=True)
class Lease:
    job_id: str
    tenant_id: str
    worker_id: str
    fence: Fence
    attempt: int
    granted_ms: int
    until_ms: int
    #: When its holder last renewed it.
    renewed_ms: int

    def is_live(self, now_ms: int) -> bool:
        return self.until_ms > now_ms

    def last_sign_of_life(self, *, recorded_ms: int) -> int:
        """Until when the holder was surely at work. `recorded_ms`: when something was last recorded for the job."""
        return max(self.granted_ms, min(max(self.renewed_ms, recorded_ms), self.until_ms))


def guard(lease: Lease | None, *, fence: int, now_ms: int) -> Lease:
    """Let a write pass that names the current fence of a live lease; an expired one is never revived."""
    if lease is None:
        raise FenceStale(f"no lease is held: fence {fence} is over. Write nothing more and end the sandbox")
    if lease.fence != fence:
        raise FenceStale(f"job {lease.job_id}: fence {fence} is not the current fence {lease.fence}")
    if not lease.is_live(now_ms):
        raise FenceStale(f"job {lease.job_id}: the lease expired {now_ms - lease.until_ms} ms ago")
    return lease


def extended(lease: Lease, *, now_ms: int, ttl_ms: int) -> Lease:
    """Same lease, valid for another ttl from now; never shorter than it was."""
    return replace(lease, until_ms=max(lease.until_ms, now_ms + ttl_ms), renewed_ms=now_ms)
