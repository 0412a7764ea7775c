"""What the gateway needs of the store for workers of other machines, beside what every worker needs."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from controlplane.domain.identity import Scope


@dataclass(frozen=True, kw_only=True)
class WorkerFacts:
    """What a worker says of itself."""

    worker_id: str
    host: str = ""
    slots: int = 0
    image: str = ""
    #: As JSON.
    facts: str = "{}"


@dataclass(frozen=True, kw_only=True)
class ReadyJob:
    """A job that may be claimed."""

    job_id: str
    generation: int
    tenant_id: str


#: Changes whenever something is wanted of a job that its worker has not been told; means nothing else.
Mark = tuple[object, ...]


class Remote(Protocol):
    """Workers of other machines, as the store sees them."""

    def enlist(self, facts: WorkerFacts) -> bool:
        """Keep what a worker says of itself, and that it was seen; True when it is to drain."""
        ...

    def is_draining(self, worker_id: str) -> bool: ...

    def holder(self, job_id: str, *, fence: int) -> str | None:
        """Whom a lease was granted to, whether it lasts or not."""
        ...

    def ready(self, *, scope: Scope, limit: int) -> list[ReadyJob]:
        """Jobs to be worked on now, the most urgent first."""
        ...

    def marks(self, job_ids: Collection[str]) -> dict[str, Mark]:
        """What is wanted of each of these jobs; one that is not here has none."""
        ...
