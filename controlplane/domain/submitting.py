"""How a job begins: ready at once, or waiting for its time."""

from dataclasses import replace

from controlplane.domain.commands import SubmitJob
from controlplane.domain.events import JobEvent, JobParked, JobSubmitted
from controlplane.domain.job_state import JobState


def decide(state: JobState, command: SubmitJob) -> list[JobEvent]:
    if state.job_id:
        return []
    timing = command.timing
    submitted = JobSubmitted(
        job_id=command.job_id,
        task_id=command.task_id,
        step_id=command.step_id,
        tenant_id=command.tenant_id,
        spec_digest=command.spec_digest,
        max_attempts=command.max_attempts,
        model=command.model,
        sub_model=command.sub_model,
        priority=timing.priority,
        deadline_ms=timing.deadline_ms,
        traceparent=timing.traceparent,
    )
    if timing.not_before_ms is None:
        return [submitted]
    return [submitted, _scheduled(command.job_id, timing.not_before_ms)]


def _scheduled(job_id: str, not_before_ms: int) -> JobParked:
    """What is not to start yet waits like everything that waits for a time."""
    return JobParked(job_id=job_id, fence=0, reason="scheduled", detail="", not_before_ms=not_before_ms)


def evolve(state: JobState, event: JobSubmitted) -> JobState:
    return replace(
        state,
        job_id=event.job_id,
        task_id=event.task_id,
        step_id=event.step_id,
        tenant_id=event.tenant_id,
        max_attempts=event.max_attempts,
        generation=1,
        priority=event.priority,
        deadline_ms=event.deadline_ms,
        model=event.model,
        sub_model=event.sub_model,
        traceparent=event.traceparent,
    )
