"""A job: what is wanted of it (desired), what it is (state), who may write for it (fence). Pure; knows no clock and no store."""

from dataclasses import replace
from typing import assert_never

from controlplane.domain import outside, submitting
from controlplane.domain.commands import (
    AnswerJob,
    ClaimJob,
    ForkJob,
    GiveUpJob,
    HandBack,
    ImportJob,
    JobCommand,
    LoseLease,
    ObserveStop,
    Order,
    OrderStop,
    ParkJob,
    RejectLateWrite,
    ResumeJob,
    SettleJob,
    StartJob,
    SteerJob,
    SubmitJob,
    UnparkJob,
    VerifyStop,
)
from controlplane.domain.events import (
    JobAnswered,
    JobEvent,
    JobFinished,
    JobForked,
    JobHeld,
    JobImported,
    JobLeased,
    JobParked,
    JobQuarantined,
    JobRequeued,
    JobResumed,
    JobStarted,
    JobSteered,
    JobSubmitted,
    JobUnparked,
    LateWriteRejected,
    LeaseEnded,
    LeaseReleased,
    StopProved,
    StopRequested,
    StopSeen,
    StopUnproved,
)
from controlplane.domain.job_state import JobState, Parked, Stop
from controlplane.errors import FenceStale, InvalidRequest, VersionConflict
from rlm_worker.contracts.gateway import Desired

_STRENGTH: dict[Desired, int] = {"run": 0, "pause": 1, "stop": 2, "kill": 3}


def decide(state: JobState, command: JobCommand) -> list[JobEvent]:  # noqa: C901, PLR0911, PLR0912 - one line per command
    """Answer a command with the events it causes; an empty list means: already so, or not possible any more."""
    match command:
        case SubmitJob():
            return submitting.decide(state, command)
        case ClaimJob():
            return _claim(state, command)
        case GiveUpJob():
            return [] if state.is_leased or state.is_terminal else [_given_up(state, command)]
        case StartJob():
            _check_fence(state, command.fence)
            return [JobStarted(job_id=state.job_id, fence=command.fence)] if state.state == "leased" else []
        case LoseLease():
            return _lose_lease(state, command)
        case HandBack():
            return _hand_back(state, command)
        case ParkJob():
            return _park(state, command)
        case UnparkJob():
            return _unpark(state, command)
        case OrderStop():
            return _order_stop(state, command)
        case ObserveStop():
            _check_fence(state, command.fence)
            return [StopSeen(job_id=state.job_id, at_ms=command.at_ms)] if _is_unseen(state) else []
        case VerifyStop():
            _check_fence(state, command.fence)
            return _verify_stop(state, command)
        case ResumeJob():
            return _resume(state, command)
        case SteerJob():
            return _steer(state, command)
        case ForkJob() | ImportJob() | AnswerJob():
            return outside.decide(state, command)
        case SettleJob():
            return _settle(state, command)
        case RejectLateWrite():
            return [LateWriteRejected(job_id=state.job_id, fence=command.fence, what=command.what)]
        case _:
            assert_never(command)


def _check_fence(state: JobState, fence: int) -> None:
    if not state.is_leased or fence != state.fence:
        raise FenceStale(
            f"job {state.job_id}: fence {fence} is over, the job is {state.state} at fence {state.fence}"
        )


def _claim(state: JobState, command: ClaimJob) -> list[JobEvent]:
    if not state.is_ready or state.is_leased or command.generation != state.generation:
        raise VersionConflict(
            f"job {state.job_id} is {state.state}, generation {state.generation}: it cannot be claimed"
        )
    return [
        JobLeased(
            job_id=state.job_id,
            worker_id=command.worker_id,
            fence=state.fence + 1,
            attempt=state.attempts + 1,
        )
    ]


def _given_up(state: JobState, command: GiveUpJob) -> JobFinished:
    return JobFinished(
        job_id=state.job_id,
        fence=state.fence,
        status="failed",
        failure_class=command.failure_class,
        result_digest="",
    )


def _lose_lease(state: JobState, command: LoseLease) -> list[JobEvent]:
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
        return [lost, *proof, JobHeld(job_id=state.job_id)]
    return [lost, JobRequeued(job_id=state.job_id, generation=state.generation + 1)]


def _hand_back(state: JobState, command: HandBack) -> list[JobEvent]:
    """Stopping is left to its worker: a job that shall end must not become ready again."""
    if not state.is_leased or command.fence != state.fence or state.desired in ("stop", "kill"):
        return []
    released = LeaseReleased(job_id=state.job_id, fence=state.fence)
    if state.desired == "pause":
        return [released, JobHeld(job_id=state.job_id)]
    return [released, JobRequeued(job_id=state.job_id, generation=state.generation + 1)]


def _park(state: JobState, command: ParkJob) -> list[JobEvent]:
    """Asked again after a lost answer it is already so. A stop or a pause in force is stronger than waiting."""
    if state.state == "parked" and command.fence == state.fence:
        return []
    _check_fence(state, command.fence)
    if state.desired != "run":
        return []
    parked = JobParked(
        job_id=state.job_id,
        fence=command.fence,
        reason=command.reason,
        detail=command.detail,
        not_before_ms=command.not_before_ms,
    )
    return [parked]


def _unpark(state: JobState, command: UnparkJob) -> list[JobEvent]:
    if state.state != "parked":
        return []
    return [JobUnparked(job_id=state.job_id, by=command.by, generation=state.generation + 1)]


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


def _order_stop(state: JobState, command: OrderStop) -> list[JobEvent]:
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
    ordered = evolve(state, requested)
    ended = JobHeld(job_id=state.job_id) if order == "pause" else _stopped(ordered)
    return [requested, *_proof(ordered, at_ms=command.at_ms, survivors=left), ended]


def _escalated(desired: Desired, order: Order) -> Order | None:
    """Second press acts: a stop that was asked for again is a kill. A weaker order than the one in force is nothing new."""
    if desired == "stop" and order == "stop":
        return "kill"
    if _STRENGTH[order] < _STRENGTH[desired]:
        return None
    return order


def _is_unseen(state: JobState) -> bool:
    return state.stop is not None and state.stop.observed_ms is None


def _verify_stop(state: JobState, command: VerifyStop) -> list[JobEvent]:
    if state.stop is None or state.stop.verified_ms is not None:
        return []
    proved = StopProved(job_id=state.job_id, at_ms=command.at_ms, survivors=command.survivors)
    # A paused worker has nothing more to say: its lease ends here, and its journal is where it goes on.
    return [proved, JobHeld(job_id=state.job_id)] if state.desired == "pause" else [proved]


def _resume(state: JobState, command: ResumeJob) -> list[JobEvent]:
    if state.is_terminal:
        raise InvalidRequest(
            f"job {state.job_id} is {state.state} already: see it with `custody show {state.job_id}`"
        )
    if state.desired in ("stop", "kill"):
        raise InvalidRequest(f"job {state.job_id} is being stopped: it cannot be resumed")
    if state.state not in ("held", "parked"):
        return []
    return [JobResumed(job_id=state.job_id, by=command.by, generation=state.generation + 1)]


def _steer(state: JobState, command: SteerJob) -> list[JobEvent]:
    if state.is_terminal or state.desired in ("stop", "kill"):
        raise InvalidRequest(f"job {state.job_id} is {state.state}: too late to steer it")
    return [JobSteered(job_id=state.job_id, steer_id=command.steer_id, text=command.text, by=command.by)]


def _settle(state: JobState, command: SettleJob) -> list[JobEvent]:
    if (
        state.is_terminal
        and command.fence == state.settled_fence
        and command.result_digest == state.result_digest
    ):
        return []
    _check_fence(state, command.fence)
    return [
        JobFinished(
            job_id=state.job_id,
            fence=command.fence,
            status=command.status,
            failure_class=command.failure_class,
            result_digest=command.result_digest,
        )
    ]


def evolve(state: JobState, event: JobEvent) -> JobState:  # noqa: C901, PLR0911, PLR0912 - one line per event
    """Fold one event. Never fails, never decides."""
    match event:
        case JobSubmitted():
            return submitting.evolve(state, event)
        case JobLeased():
            return replace(state, state="leased", is_leased=True, fence=event.fence, attempts=event.attempt)
        case JobStarted():
            return replace(state, state="running")
        case LeaseEnded():
            return replace(state, is_leased=False, losses=state.losses + 1)
        case LeaseReleased():
            return replace(state, is_leased=False)
        case JobRequeued():
            return replace(state, state="queued", generation=event.generation)
        case JobQuarantined():
            return replace(state, state="quarantined", reason=event.reason, settled_fence=state.fence)
        case StopRequested():
            return _stop_requested(state, event)
        case StopSeen():
            return _with_stop(state, observed_ms=event.at_ms)
        case StopProved():
            return _with_stop(state, verified_ms=event.at_ms, survivors=event.survivors)
        case StopUnproved():
            return _with_stop(state, survivors=event.survivors)
        case JobParked():
            return replace(state, state="parked", is_leased=False, parked=_parked(event))
        case JobUnparked():
            return replace(state, state="queued", parked=None, generation=event.generation)
        case JobHeld():
            return replace(state, state="held", is_leased=False, parked=None)
        case JobResumed():
            ready = replace(state, state="queued", desired="run", generation=event.generation)
            return replace(ready, reason="", stop=None, parked=None)
        case JobFinished():
            return replace(
                state,
                state=event.status,
                is_leased=False,
                parked=None,
                settled_fence=event.fence,
                result_digest=event.result_digest,
            )
        case JobSteered() | JobAnswered() | JobForked() | JobImported() | LateWriteRejected():
            return state
        case _:
            assert_never(event)


def _parked(event: JobParked) -> Parked:
    return Parked(reason=event.reason, detail=event.detail, not_before_ms=event.not_before_ms)


def _stop_requested(state: JobState, event: StopRequested) -> JobState:
    ends = event.order != "pause"
    # A pause that becomes a stop is a new order; a stop that becomes a kill is the same one, pressed again.
    continues = state.stop is not None and ends == (state.stop.order != "pause")
    stop = (
        replace(state.stop, order=event.order)
        if continues and state.stop is not None
        else Stop(order=event.order, requested_ms=event.at_ms)
    )
    return replace(
        state,
        desired=event.order,
        reason=event.reason,
        state="stopping" if ends and state.is_leased else state.state,
        stop=stop,
    )


def _with_stop(
    state: JobState,
    *,
    observed_ms: int | None = None,
    verified_ms: int | None = None,
    survivors: tuple[int, ...] = (),
) -> JobState:
    if state.stop is None:
        return state
    stop = replace(
        state.stop,
        observed_ms=state.stop.observed_ms if state.stop.observed_ms is not None else observed_ms,
        verified_ms=state.stop.verified_ms if state.stop.verified_ms is not None else verified_ms,
        survivors=survivors or state.stop.survivors,
    )
    return replace(state, stop=stop)
