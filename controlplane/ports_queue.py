"""What the queue needs of the store: which jobs are ready, who works, and which process has which duty. Rows are plain values."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from controlplane.domain.queueing import Kind, Lane, Share
from rlm_worker.contracts.base import JsonObject


@dataclass(frozen=True, kw_only=True)
class Wake:
    """A wake-up: look at this job in this generation."""

    job_id: str
    generation: int
    #: W3C trace context of whoever submitted the job; empty: none was given.
    traceparent: str = ""


@dataclass(frozen=True, kw_only=True)
class Signs:
    """What a dispatcher might have to do, told by one cheap look."""

    #: Some ready job has not been sent.
    has_ready: bool
    #: Some parked job's time has come.
    has_waited: bool
    #: When the oldest wake-up was sent that nobody has taken up; None: there is none.
    oldest_sent_ms: int | None
    #: When the job was refused that is to be tried again first; None: none was.
    oldest_refused_ms: int | None

    def is_stale(self, before_ms: int) -> bool:
        """Whether something was sent or refused so long ago that it has to be looked at again."""
        return any(at is not None and at <= before_ms for at in (self.oldest_sent_ms, self.oldest_refused_ms))


@dataclass(frozen=True, kw_only=True)
class WorkerRow:
    """A process that works on jobs."""

    worker_id: str
    host: str = ""
    #: Jobs of the common queue that it works on at once.
    slots: int = 0
    image: str = ""
    facts: JsonObject = field(default_factory=dict)
    is_draining: bool = False
    first_seen_ms: int = 0
    last_seen_ms: int = 0
    #: When it was found to be gone, or said goodbye.
    gone_ms: int | None = None


class Backlog(Protocol):
    """Jobs that are ready, sent or refused. A job that became ready has been sent by nobody: its row is the outbox."""

    def signs(self) -> Signs: ...

    def lanes(self, *, after: str, most: int, count_to: int) -> list[tuple[Lane, int]]:
        """Lanes with jobs that were not sent, beyond the one named, and how many are in each (at most `count_to`)."""
        ...

    def first_of(self, lane: Lane, *, limit: int, spares_switched: bool) -> list[Wake]:
        """The oldest of a lane; on demand without those whose task or job a kill switch covers."""
        ...

    def busy(self) -> Counter[Kind]:
        """Jobs at work, by kind."""
        ...

    def sent(self) -> Counter[Kind]:
        """Jobs that were sent and not taken up, by kind."""
        ...

    def shares(self, tenant_ids: Collection[str]) -> dict[str, Share]:
        """Of those tenants that something is known of."""
        ...

    def mark_sent(self, wakes: Sequence[Wake]) -> None: ...

    def put_back_lost(self, *, sent_before_ms: int, limit: int) -> int:
        """Wake-ups that were sent so long ago count as lost, oldest first: their jobs are ready to be sent again."""
        ...

    def put_back_refused(self, *, refused_before_ms: int, limit: int) -> int: ...

    def refuse(self, job_id: str, *, at_once: bool) -> None:
        """A worker could not take the job up: it may be sent again, at once or after a while."""
        ...

    def overdue(self, *, limit: int) -> list[str]:
        """Jobs under way, or ready, whose deadline has passed and that nobody stops yet."""
        ...


class Workers(Protocol):
    def get(self, worker_id: str) -> WorkerRow | None: ...

    def put(self, row: WorkerRow) -> None:
        """Enter what a worker says about itself; whether it drains stays as it is."""
        ...

    def seen(self, worker_id: str) -> None: ...

    def set_draining(self, worker_id: str, *, is_draining: bool) -> None: ...

    def mark_gone(self, worker_id: str) -> None: ...

    def all(self, *, limit: int) -> list[WorkerRow]:
        """Those that are there, then those seen last."""
        ...

    def live(self, *, seen_since_ms: int) -> list[WorkerRow]: ...

    def forget(self, *, gone_before_ms: int) -> None: ...


class Duties(Protocol):
    """What only one process at a time shall do."""

    def take(self, name: str, *, holder: str, ttl_ms: int, instead_of: str = "") -> bool:
        """Take or keep a duty; False while somebody else has it. `instead_of`: a holder that is known to be gone."""
        ...

    def holder(self, name: str) -> str:
        """Who has it; empty: nobody."""
        ...

    def leave(self, name: str, *, holder: str) -> None: ...
