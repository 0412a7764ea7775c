"""Lets go of a job that has to wait: the wait is recorded, then the lease is given back."""

import asyncio

from rlm_worker.contracts.gateway import Gateway, GatewayDown, GatewayRefused, Lease, ParkRequest
from rlm_worker.contracts.limits import Parked
from rlm_worker.crashpoints import crash_here
from rlm_worker.endings import Waits
from rlm_worker.errors import LostAuthority
from rlm_worker.trace import TraceWriter

_AGAIN_SECONDS = 0.2
_DETAIL_CHARACTERS = 1_000


async def park(
    gateway: Gateway, writer: TraceWriter, lease: Lease, wait: Waits, *, lost: "asyncio.Future[str]"
) -> bool:
    """Park, or return False when an order is in force that must be followed instead. Nothing may be held any more."""
    assert wait.reason != "paused", "a pause is proved, not parked"
    detail = wait.detail[:_DETAIL_CHARACTERS]
    await writer.write(Parked(reason=wait.reason, detail=detail, not_before=wait.not_before))
    request = ParkRequest(
        job_id=lease.job_id, fence=lease.fence, reason=wait.reason, detail=detail, not_before=wait.not_before
    )
    while not lost.done():
        try:
            crash_here("park.before")
            answer = await asyncio.to_thread(gateway.park, request)
            crash_here("park.after")
        except GatewayDown:
            await asyncio.sleep(_AGAIN_SECONDS)
        except GatewayRefused as refused:
            raise LostAuthority(f"job {lease.job_id} could not be parked: {refused}") from refused
        else:
            return answer.parked
    raise LostAuthority(lost.result())
