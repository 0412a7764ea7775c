"""What the commands of a person ask, whoever answers: the home of this machine, or a server somewhere else."""

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, Protocol, TypeAlias

from pydantic import JsonValue

from controlplane.adapters.sources.typed import Source
from controlplane.domain.commands import JobRequest, Order
from controlplane.views import JobStateName, JobView, QuestionView
from rlm_worker.contracts import Budget, EvidenceRef, TraceRecord
from rlm_worker.contracts.job import JobSpec
from rlm_worker.contracts.reading import ManifestEntry
from rlm_worker.contracts.result import ArtifactRef

#: Stands for a model that whoever runs the installation has chosen.
SERVERS_CHOICE = "chosen by the server"

#: Told of each document that became text: how many are done, how many there are, its name.
OnConverted: TypeAlias = Callable[[int, int, str], None]
#: Returns after some seconds, or earlier when there is a reason to.
Wait: TypeAlias = Callable[[float], object]


@dataclass(frozen=True, kw_only=True)
class JobQuery:
    """Which jobs to list: those that fit everything that is said."""

    state: JobStateName | None = None
    labels: tuple[tuple[str, str], ...] = ()
    model: str = ""
    words: str = ""
    since: datetime | None = None
    task_id: str = ""


ANY_JOB = JobQuery()


@dataclass(frozen=True, kw_only=True)
class JobLine:
    """A job in a list."""

    job_id: str
    state: str
    question: str
    created_at: datetime
    driver: str = ""
    subcalls: int = 0
    tokens: int = 0
    cost_usd: Decimal | None = None
    answered_by: str = ""


class Custodian(Protocol):
    """Keeps jobs. `by` is who asks, where that is not known from a credential."""

    #: What to call the place in words: `this home`, or the address of a server.
    place: str
    #: What to do so that a ready job is taken up.
    hint_of_workers: str
    #: Whether its specs say where evidence lies: without that, a digest of a spec is another one.
    has_whole_specs: bool

    def stage(
        self,
        sources: Sequence[Path | Source],
        *,
        snapshot: bool = False,
        on_converted: OnConverted = ...,
    ) -> tuple[EvidenceRef, ...]: ...

    def submit(self, request: JobRequest) -> JobView: ...

    def job(self, job_id: str) -> JobView: ...

    def lines(self, query: JobQuery) -> Iterator[JobLine]:
        """Jobs, newest first; they are asked for as they are needed."""
        ...

    def is_abandoned(self, view: JobView) -> bool: ...

    def stop(self, job_id: str, *, order: Order = "stop", by: str = "", reason: str = "") -> JobView: ...

    def steer(self, job_id: str, text: str, *, by: str = "") -> int: ...

    def resume(self, job_id: str, *, by: str = "") -> JobView: ...

    def fork(
        self, job_id: str, *, at: int | None, by: str = "", steer: str = "", budget: Budget | None = None
    ) -> JobView: ...

    def questions(self, job_id: str) -> list[QuestionView]: ...

    def reply(self, job_id: str, *, question: int | None, value: JsonValue, by: str = "") -> int:
        """Answer a question; its number."""
        ...

    def trace(self, job_id: str, *, after: int = 0, limit: int = 1_000) -> list[TraceRecord]: ...

    def follow(self, job_id: str, *, wait: Wait) -> Iterator[tuple[JobView, list[TraceRecord]]]:
        """How a job stands and what its trace has more than the last time, again and again.

        A view is older than the events that come with it and after it: when an ended job's come to an end, they are whole.
        """
        ...

    def verify(self, view: JobView) -> int:
        """Check what is chained of a job; the number of its trace's events."""
        ...

    def manifest(self, ref: EvidenceRef) -> Sequence[ManifestEntry]: ...

    def notes(self, ref: EvidenceRef) -> Sequence[str]: ...

    def artifact(self, view: JobView, ref: ArtifactRef) -> AbstractContextManager[IO[bytes]]:
        """The content of a file that a job made; whoever copies it checks its digest."""
        ...

    def place_of(self, ref: ArtifactRef) -> Path | None:
        """Where the content of a file lies on this machine."""
        ...

    def at_work(self, only_jobs: AbstractSet[str]) -> AbstractContextManager[object]:
        """Somebody works on these jobs for as long as this is entered."""
        ...


def driver_name(spec: JobSpec) -> str:
    """The driver in one word, with what it is driven by."""
    match spec.driver.kind:
        case "model":
            return f"model {spec.driver.model}"
        case "playbook":
            return f"playbook {spec.driver.name}"
        case "recording":
            return f"recording of {spec.driver.job_id}"
