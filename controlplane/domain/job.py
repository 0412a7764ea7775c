"""A job: what is wanted of it (desired), what it is (state), who may write for it (fence). Pure; knows no clock and no store."""

from dataclasses import replace
from typing import assert_never

from controlplane.domain import operating, outside, stopping, submitting
from controlplane.domain.commands import (
    AnswerJob,
    ClaimJob,
    CompleteJob,
    ForkJob,
    GiveUpJob,
    HandBack,
    ImportJob,
    JobCommand,
    LoseLease,
    ObserveStop,
    OrderStop,
    ParkJob,
    QuarantineJob,
    RejectLateWrite,
    ReportStuck,
    ResumeJob,
    RetryJob,
    RetuneJob,
    SettleJob,
    StartJob,
    SteerJob,
    SubmitJob,
    UnparkJob,
    VerifyStop,
)
from controlplane.domain.events import (
    JobAnswered,
    JobCompleted,
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
    JobRetried,
    JobRetuned,
    JobStarted,
    JobSteered,
    JobStuck,
    JobSubmitted,
    JobUnparked,
    LateWriteRejected,
    LeaseEnded,
    LeaseReleased,
    PauseLifted,
    StopProved,
    StopRequested,
    StopSeen,
    StopUnproved,
)
from controlplane.domain.job_state import JobState, Parked
from controlplane.errors import FenceStale, InvalidRequest, VersionConflict


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
            return stopping.lose_lease(state, command)
        case HandBack():
            return stopping.hand_back(state, command)
        case ParkJob():
            return _park(state, command)
        case UnparkJob():
            return _unpark(state, command)
        case OrderStop():
            return stopping.order_stop(state, command)
        case ObserveStop():
            _check_fence(state, command.fence)
            return [_seen(state, command)] if stopping.is_unseen(state) else []
        case VerifyStop():
            _check_fence(state, command.fence)
            return stopping.verify_stop(state, command)
        case ResumeJob():
            return stopping.resume(state, command)
        case RetuneJob() | RetryJob() | CompleteJob() | QuarantineJob() | ReportStuck():
            return operating.decide(state, command)
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


def _seen(state: JobState, command: ObserveStop) -> StopSeen:
    return StopSeen(job_id=state.job_id, at_ms=command.at_ms, delivered_ms=command.delivered_ms)


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
            return _quarantined(state, event)
        case StopRequested():
            return stopping.stop_requested(state, event)
        case StopSeen():
            return stopping.with_stop(state, observed_ms=event.at_ms, delivered_ms=event.delivered_ms)
        case StopProved():
            return stopping.with_stop(state, verified_ms=event.at_ms, survivors=event.survivors)
        case StopUnproved():
            return stopping.with_stop(state, survivors=event.survivors)
        case JobParked():
            return replace(state, state="parked", is_leased=False, parked=_parked(event))
        case JobUnparked():
            return replace(state, state="queued", parked=None, generation=event.generation)
        case JobHeld():
            return replace(state, state="held", is_leased=False, parked=None)
        case JobResumed():
            ready = replace(state, state="queued", desired="run", generation=event.generation)
            return replace(ready, reason="", stop=None, parked=None)
        case PauseLifted() | JobRetuned() | JobRetried() | JobCompleted() | JobStuck():
            return operating.evolve(state, event)
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


def _quarantined(state: JobState, event: JobQuarantined) -> JobState:
    ended = replace(state, state="quarantined", reason=event.reason, settled_fence=state.fence)
    return replace(ended, parked=None)


def _parked(event: JobParked) -> Parked:
    return Parked(reason=event.reason, detail=event.detail, not_before_ms=event.not_before_ms)
