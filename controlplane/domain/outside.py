"""What comes to a job from outside its own run: a person's answer, a fork, another home. Pure; folded by job.evolve."""

from dataclasses import asdict
from typing import assert_never

from controlplane.domain.commands import AnswerJob, ForkJob, ImportJob
from controlplane.domain.events import JobAnswered, JobEvent, JobFinished, JobForked, JobImported
from controlplane.domain.job_state import JobState
from controlplane.errors import InvalidRequest


def decide(state: JobState, command: ForkJob | ImportJob | AnswerJob) -> list[JobEvent]:
    """Answer a command with the events it causes."""
    match command:
        case ForkJob():
            return [JobForked(job_id=state.job_id, **asdict(command))]
        case ImportJob():
            return _import(state, command)
        case AnswerJob():
            if state.is_terminal or state.desired in ("stop", "kill"):
                raise InvalidRequest(f"job {state.job_id} is {state.state}: too late to answer it")
            return [JobAnswered(job_id=state.job_id, **asdict(command))]
        case _:
            assert_never(command)


def _import(state: JobState, command: ImportJob) -> list[JobEvent]:
    finished = JobFinished(
        job_id=state.job_id,
        fence=0,
        status=command.status,
        failure_class=command.failure_class,
        result_digest=command.result_digest,
    )
    return [JobImported(job_id=state.job_id, by=command.by), finished]
