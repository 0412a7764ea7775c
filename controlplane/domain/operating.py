"""What operators and watchdogs do to a job beyond stopping it: other limits, another try, an answer by hand. Pure; folded by job.evolve."""

from dataclasses import replace
from typing import assert_never

from controlplane.domain.commands import CompleteJob, QuarantineJob, ReportStuck, RetryJob, RetuneJob
from controlplane.domain.events import (
    JobCompleted,
    JobEvent,
    JobFinished,
    JobQuarantined,
    JobRetried,
    JobRetuned,
    JobStuck,
    JobUnparked,
    LeaseEnded,
    PauseLifted,
)
from controlplane.domain.job_state import JobState
from controlplane.errors import InvalidRequest

Command = RetuneJob | RetryJob | CompleteJob | QuarantineJob | ReportStuck
Event = PauseLifted | JobRetuned | JobRetried | JobCompleted | JobStuck


def decide(state: JobState, command: Command) -> list[JobEvent]:
    """Answer a command with the events it causes."""
    match command:
        case RetuneJob():
            return _retune(state, command)
        case RetryJob():
            return _retry(state, command)
        case CompleteJob():
            return _complete(state, command)
        case QuarantineJob():
            return _quarantine(state, command)
        case ReportStuck():
            stuck = JobStuck(
                job_id=state.job_id,
                finding_id=command.finding_id,
                condition=command.condition,
                detail=command.detail,
                action=command.action,
            )
            return [stuck]
        case _:
            assert_never(command)


def _retune(state: JobState, command: RetuneJob) -> list[JobEvent]:
    """A job that waits for a higher limit goes on with it."""
    if state.is_terminal or state.desired in ("stop", "kill"):
        raise InvalidRequest(f"job {state.job_id} is {state.state}: too late to change its limits")
    retuned = JobRetuned(
        job_id=state.job_id,
        budget_version=state.budget_version + 1,
        budget=command.budget.model_dump(mode="json"),
        by=command.by,
        reason=command.reason,
    )
    if state.parked is not None and state.parked.reason == "budget":
        return [retuned, JobUnparked(job_id=state.job_id, by=command.by, generation=state.generation + 1)]
    return [retuned]


def _retry(state: JobState, command: RetryJob) -> list[JobEvent]:
    """Never by itself: only a person brings a job back that killed its workers."""
    if state.state not in ("failed", "quarantined"):
        raise InvalidRequest(
            f"job {state.job_id} is {state.state}: only one that failed or was quarantined can be retried"
        )
    retried = JobRetried(
        job_id=state.job_id,
        generation=state.generation + 1,
        by=command.by,
        reason=command.reason,
        max_attempts=state.losses + command.max_attempts,
    )
    return [retried]


def _complete(state: JobState, command: CompleteJob) -> list[JobEvent]:
    if state.is_leased:
        raise InvalidRequest(
            f"job {state.job_id} is at work: pause or stop it before it is completed by hand"
        )
    if state.state in ("succeeded", "partial"):
        raise InvalidRequest(f"job {state.job_id} {state.state} already: its answer stays as it is")
    by_hand = JobCompleted(
        job_id=state.job_id, result_digest=command.result_digest, by=command.by, reason=command.reason
    )
    finished = JobFinished(
        job_id=state.job_id,
        fence=state.fence,
        status="succeeded",
        failure_class=None,
        result_digest=command.result_digest,
    )
    return [by_hand, finished]


def _quarantine(state: JobState, command: QuarantineJob) -> list[JobEvent]:
    if state.is_terminal:
        return []
    ended: list[JobEvent] = []
    if state.is_leased:
        ended.append(LeaseEnded(job_id=state.job_id, fence=state.fence, reason=command.reason))
    return [*ended, JobQuarantined(job_id=state.job_id, reason=command.reason)]


def evolve(state: JobState, event: Event) -> JobState:
    """Fold one event."""
    match event:
        case PauseLifted():
            lifted = None if state.stop is None else replace(state.stop, lifted_by=event.by)
            return replace(state, stop=lifted)
        case JobRetuned():
            return replace(state, budget_version=event.budget_version)
        case JobRetried():
            ready = replace(state, state="queued", desired="run", generation=event.generation, reason="")
            return replace(
                ready, stop=None, settled_fence=0, result_digest="", max_attempts=event.max_attempts
            )
        case JobCompleted() | JobStuck():
            return state
        case _:
            assert_never(event)
