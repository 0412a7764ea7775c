"""Stops, pauses and lost leases: what an order comes to, and what can be said about its end. Pure; folded by job.evolve."""

from dataclasses import replace

from controlplane.domain.commands import HandBack, LoseLease, Order, OrderStop, ResumeJob, VerifyStop
from controlplane.domain.events import (
    JobEvent,
    JobFinished,
    JobHeld,
    JobQuarantined,
    JobRequeued,
    JobResumed,
    LeaseEnded,
    LeaseReleased,
    PauseLifted,
    StopProved,
    StopRequested,
    StopUnproved,
)
from controlplane.domain.job_state import JobState, Stop
from controlplane.errors import InvalidRequest
from rlm_worker.contracts.gateway import Desired

STRENGTH: dict[Desired, int] = {"run": 0, "pause": 1, "stop": 2, "kill": 3}


def stronger(one: Desired, other: Desired) -> Desired:
    return max(one, other, key=STRENGTH.__getitem__)


def lose_lease(state: JobState, command: LoseLease) -> list[JobEvent]:
    if not state.is_leased or command.fence != state.fence:
        return []
    lost = LeaseEnded(job_id=state.job_id, fence=state.fence, reason=command.reason)
    if state.desired in ("stop", "kill"):
        return [lost, *_proof(state, at_ms=command.at_ms, survivors=command.survivors), _stopped(state)]
    if state.losses + 1 >= state.max_attempts:
        reason = f"its worker died {state.losses + 1} times, last: {command.reason}"
        return [lost, JobQuarantined(job_id=state.job_id, reason=reason)]
    if state.desired == "pause":
        proof = _proof(state, at_ms=command.at_ms, survivors=command.survivors)
        return [lost, *proof, *_held(state)]
    return [lost, JobRequeued(job_id=state.job_id, generation=state.generation + 1)]


def hand_back(state: JobState, command: HandBack) -> list[JobEvent]:
    """Stopping is left to its worker: a job that shall end must not become ready again."""
    if not state.is_leased or command.fence != state.fence or state.desired in ("stop", "kill"):
        return []
    released = LeaseReleased(job_id=state.job_id, fence=state.fence)
    if state.desired == "pause":
        return [released, *_held(state)]
    return [released, JobRequeued(job_id=state.job_id, generation=state.generation + 1)]


def _proof(state: JobState, *, at_ms: int, survivors: tuple[int, ...]) -> list[JobEvent]:
    """What can be said about a stop whose worker said nothing: a lease that ran out proves nothing about a process."""
    if state.stop is not None and state.stop.verified_ms is not None:
        return []
    if survivors:
        return [StopUnproved(job_id=state.job_id, survivors=survivors)]
    return [StopProved(job_id=state.job_id, at_ms=at_ms)]


def _stopped(state: JobState) -> JobFinished:
    return JobFinished(
        job_id=state.job_id, fence=state.fence, status="stopped", failure_class="stopped", result_digest=""
    )


def order_stop(state: JobState, command: OrderStop) -> list[JobEvent]:
    if state.is_terminal:
        return []
    order = _escalated(state.desired, command.order)
    if order is None or (order == "pause" and state.state == "held"):
        return []
    requested = StopRequested(
        job_id=state.job_id, order=order, by=command.by, reason=command.reason, at_ms=command.at_ms
    )
    if state.is_leased:
        return [requested]
    # Nobody has the job, so nothing of it can be left but what an earlier order could not account for.
    left = () if state.stop is None else state.stop.survivors
    ordered = stop_requested(state, requested)
    ended = JobHeld(job_id=state.job_id) if order == "pause" else _stopped(ordered)
    return [requested, *_proof(ordered, at_ms=command.at_ms, survivors=left), ended]


def _escalated(desired: Desired, order: Order) -> Order | None:
    """Second press acts: a stop that was asked for again is a kill. A weaker order than the one in force is nothing new."""
    if desired == "stop" and order == "stop":
        return "kill"
    if STRENGTH[order] < STRENGTH[desired]:
        return None
    return order


def is_unseen(state: JobState) -> bool:
    return state.stop is not None and state.stop.observed_ms is None


def verify_stop(state: JobState, command: VerifyStop) -> list[JobEvent]:
    """Nothing of the job runs any more; a pause is complete with that."""
    if state.stop is None or state.stop.verified_ms is not None:
        return []
    proved = StopProved(job_id=state.job_id, at_ms=command.at_ms, survivors=command.survivors)
    # A paused worker has nothing more to say: its lease ends here, and its journal is where it goes on.
    return [proved, *_held(state)] if state.desired == "pause" else [proved]


def resume(state: JobState, command: ResumeJob) -> list[JobEvent]:
    """Make a held or parked job ready; a pause that is still on its way is called off."""
    if state.is_terminal:
        raise InvalidRequest(
            f"job {state.job_id} is {state.state} already: see it with `custody show {state.job_id}`"
        )
    if state.desired in ("stop", "kill"):
        raise InvalidRequest(f"job {state.job_id} is being stopped: it cannot be resumed")
    if state.is_leased and state.desired == "pause" and state.stop is not None:
        return [] if state.stop.lifted_by else [PauseLifted(job_id=state.job_id, by=command.by)]
    if state.state not in ("held", "parked"):
        return []
    return [JobResumed(job_id=state.job_id, by=command.by, generation=state.generation + 1)]


def _held(state: JobState) -> list[JobEvent]:
    """The job holds nothing any more; one whose pause was called off is ready again at once."""
    held: list[JobEvent] = [JobHeld(job_id=state.job_id)]
    if state.stop is not None and state.stop.lifted_by:
        held.append(JobResumed(job_id=state.job_id, by=state.stop.lifted_by, generation=state.generation + 1))
    return held


def stop_requested(state: JobState, event: StopRequested) -> JobState:
    ends = event.order != "pause"
    # A pause that becomes a stop is a new order; a stop that becomes a kill is the same one, pressed again.
    continues = state.stop is not None and ends == (state.stop.order != "pause")
    stop = (
        replace(state.stop, order=event.order, lifted_by="")
        if continues and state.stop is not None
        else Stop(order=event.order, requested_ms=event.at_ms, by=event.by)
    )
    return replace(
        state,
        desired=event.order,
        reason=event.reason,
        state="stopping" if ends and state.is_leased else state.state,
        stop=stop,
    )


def with_stop(
    state: JobState,
    *,
    delivered_ms: int | None = None,
    observed_ms: int | None = None,
    verified_ms: int | None = None,
    survivors: tuple[int, ...] = (),
) -> JobState:
    if state.stop is None:
        return state
    stop = replace(
        state.stop,
        delivered_ms=state.stop.delivered_ms if state.stop.delivered_ms is not None else delivered_ms,
        observed_ms=state.stop.observed_ms if state.stop.observed_ms is not None else observed_ms,
        verified_ms=state.stop.verified_ms if state.stop.verified_ms is not None else verified_ms,
        survivors=survivors or state.stop.survivors,
    )
    return replace(state, stop=stop)
