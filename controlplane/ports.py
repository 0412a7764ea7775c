"""What handlers need of the outside: a store with short transactions. Rows are plain values; adapters give them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import JsonValue

from controlplane.domain.budget import NOTHING, Account, Amounts, Limits
from controlplane.domain.identity import Scope
from controlplane.domain.ids import Chain
from controlplane.domain.job_state import JobState
from controlplane.domain.lease import Lease
from controlplane.domain.queueing import ModelLimit
from controlplane.domain.receipts import Link
from controlplane.domain.task import TaskState
from controlplane.ports_access import AccessRows
from controlplane.ports_control import ControlRows, SideOrders, StuckRules
from controlplane.ports_queue import Backlog, Duties, Workers
from controlplane.ports_remote import Remote
from rlm_worker.contracts import TraceRecord
from rlm_worker.contracts.gateway import Desired, PersonAnswer, Steer
from rlm_worker.contracts.trace import GENESIS

#: `full`: on disk before the call returns. `normal`: survives a crash of the process, not of the machine.
Durability = Literal["full", "normal"]


@dataclass(frozen=True, kw_only=True)
class JobRow:
    """A job with everything the control plane keeps of it beside its spec and its trace."""

    state: JobState
    spec_digest: str
    account: Account
    created_ms: int
    updated_ms: int
    #: When the trace last grew; 0 before that.
    recorded_ms: int = 0
    #: Names of the tools that it may use, separated by spaces.
    tools: str = ""
    #: Time without a record after which it counts as stuck; None: what the settings say.
    progress_ms: int | None = None
    #: Set aside at the tenant when the job was first claimed; None before that and after the settlement.
    tenant_hold: Amounts | None = None
    #: Of what it spent: already settled at the tenant, because its hold ended before the job did.
    tenant_settled: Amounts = NOTHING
    #: Why the last claim of a ready job was refused.
    refusal: str = ""
    trace_events: int = 0
    trace_head: str = GENESIS
    result: str = ""
    receipt_id: str = ""


@dataclass(frozen=True, kw_only=True)
class TaskRow:
    """A task with the ends of its two chains."""

    state: TaskState
    created_ms: int
    updated_ms: int
    #: Number of events; also the version that guards every save.
    version: int = 0
    event_head: str = GENESIS
    receipts: int = 0
    receipt_head: str = GENESIS


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a worker must know between two writes."""

    desired: Desired
    reason: str
    lease: Lease | None
    steers: tuple[Steer, ...] = ()
    #: Version of the limits in force; 0: those of the spec.
    budget_version: int = 0


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    budget_id: str
    job_id: str
    kind: Literal["hold", "settle", "release"]
    amount: Amounts


@dataclass(frozen=True, kw_only=True)
class ReceiptRow:
    receipt_id: str
    link: Link


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """State of a task after an event."""

    #: Of the event with which it was saved.
    seq: int
    state: dict[str, Any]
    digest: str
    is_terminal: bool = False
    at_ms: int = 0


#: Where a job stands in the order of all: when it was created, and its id.
JobKey = tuple[int, str]


@dataclass(frozen=True, kw_only=True)
class JobFilter:
    """Which jobs are looked for; every condition must hold."""

    #: Any of these; none means any.
    states: frozenset[str] = frozenset()
    #: All of these. The first should be the one that the fewest jobs have.
    terms: tuple[str, ...] = ()
    since_ms: int | None = None
    before_ms: int | None = None


class Jobs(Protocol):
    """Whoever reads says whose rows they may see: no query can forget it."""

    def get(self, job_id: str, *, scope: Scope) -> JobRow | None: ...

    def spec(self, job_id: str) -> str: ...

    def add(self, row: JobRow, *, spec: str, terms: Sequence[str] = ()) -> None:
        """Enter a job, and what it is found by."""
        ...

    def save(self, row: JobRow) -> None: ...

    def save_recorded(self, row: JobRow) -> None:
        """Save only what recording changes: the account, the end of the trace, and when."""
        ...

    def with_prefix(self, prefix: str, *, scope: Scope, limit: int) -> list[str]: ...

    def search(
        self, wanted: JobFilter, *, scope: Scope, limit: int, after: JobKey | None
    ) -> tuple[list[JobRow], JobKey | None]:
        """A page, newest first, of those after a place; and where the next page begins, when there is one.

        It may be short: what must be looked at on the way is bounded.
        """
        ...

    def of_task(self, task_id: str) -> list[str]: ...

    def waited_enough(self, *, jobs: frozenset[str] | None, limit: int) -> list[str]:
        """Parked jobs whose time has come; with `jobs`, only those."""
        ...


class Tasks(Protocol):
    def get(self, task_id: str, *, scope: Scope) -> TaskRow | None: ...

    def add(self, row: TaskRow) -> None: ...

    def save(self, row: TaskRow, *, version: int) -> None:
        """Save over `version`; VersionConflict when someone else was faster."""
        ...


class Leases(Protocol):
    def get(self, job_id: str) -> Lease | None: ...

    def put(self, lease: Lease) -> None: ...

    def extend(self, job_id: str, *, fence: int, until_ms: int) -> None: ...

    def drop(self, job_id: str, *, outcome: str, ended_ms: int) -> None:
        """End the lease and its attempt. Nothing happens when it has ended already."""
        ...

    def all(self) -> list[Lease]: ...

    def live_of_tenant(self, tenant_id: str) -> int: ...

    def spent_ms(self, job_id: str) -> int:
        """Lease time of the attempts that are over."""
        ...


class History(Protocol):
    def append_events(self, task_id: str, links: Sequence[Link], *, actor: str) -> None: ...

    def events(self, task_id: str, *, after: int = -1) -> list[Link]: ...

    def add_receipts(self, task_id: str, rows: Sequence[ReceiptRow]) -> None: ...

    def receipts(self, task_id: str) -> list[ReceiptRow]: ...

    def save_checkpoint(self, task_id: str, checkpoint: Checkpoint) -> None: ...

    def checkpoint(self, task_id: str, *, seq: int | None = None) -> Checkpoint | None:
        """The checkpoint at a sequence, the newest when none is named."""
        ...

    def checkpoints(self, task_id: str) -> list[Checkpoint]:
        """Every checkpoint, oldest first."""
        ...

    def mark_terminal(self, task_id: str, *, seq: int) -> None:
        """Say that the task was over with this checkpoint."""
        ...

    def expire_checkpoints(self, task_id: str, *, before_ms: int) -> int:
        """Drop those that are older, but never the newest nor a terminal one; return how many. Events give them again."""
        ...


class Traces(Protocol):
    def append(self, job_id: str, records: Sequence[TraceRecord]) -> None: ...

    def read(self, job_id: str, *, after: int, limit: int) -> list[TraceRecord]: ...

    def last(self, job_id: str, *, kind: str) -> TraceRecord | None:
        """The newest event of a kind."""
        ...

    def end(self, job_id: str) -> tuple[int, str]:
        """How many events there are, and the hash of the last."""
        ...

    def of_kind(self, job_id: str, *, kind: str) -> list[TraceRecord]:
        """Every event of a kind that is rare."""
        ...

    def checked(self, job_id: str) -> Iterator[TraceRecord]:
        """Whole trace, read so that a changed byte of the stored text raises Tampered."""
        ...


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Links of a chain that follow one another, as they are stored."""

    chain: Chain
    owner_id: str
    first_seq: int
    last_seq: int
    content: bytes


class Archive(Protocol):
    """Which links of chains are in cold storage. Whoever reads a chain gets them from there without knowing."""

    def due(self, chain: Chain, *, before_ms: int, limit: int) -> list[str]:
        """Jobs or tasks that ended before a time and have links in the tables."""
        ...

    def segment(self, chain: Chain, owner_id: str, *, limit: int) -> Segment | None:
        """The oldest links that are in the tables."""
        ...

    def move(self, segment: Segment, *, digest: str) -> None:
        """Enter where links are, and take them out of the tables; VersionConflict when they are not all there any more."""
        ...

    def pieces(self, chain: Chain, owner_id: str) -> Sequence[str]:
        """Digests of the pieces that hold links of a chain, oldest first."""
        ...


class Cold(Protocol):
    """Content by its digest, for what is seldom read."""

    def keep(self, content: bytes) -> str:
        """Store durably; it has been read back when this returns its digest."""
        ...

    def read(self, digest: str) -> bytes:
        """Tampered when it is not what it was."""
        ...


class Budgets(Protocol):
    def get(self, budget_id: str) -> Account: ...

    def save(self, budget_id: str, account: Account) -> None: ...

    def set_limits(self, budget_id: str, limits: Limits) -> None: ...

    def enter(self, entry: LedgerEntry) -> None: ...

    def entries(self, budget_id: str) -> list[LedgerEntry]: ...


class Steers(Protocol):
    def add(self, job_id: str, *, text: str, by: str) -> int: ...

    def after(self, job_id: str, *, seen: int) -> tuple[Steer, ...]: ...


class Answers(Protocol):
    def add(self, job_id: str, *, question: int, value: JsonValue, by: str) -> None: ...

    def of(self, job_id: str) -> tuple[PersonAnswer, ...]: ...


class Transaction(AccessRows, ControlRows, Protocol):
    """Everything one decision reads and writes. Leaving it normally commits; an exception undoes all of it."""

    #: The database's clock, read once.
    now_ms: int
    jobs: Jobs
    tasks: Tasks
    leases: Leases
    history: History
    traces: Traces
    budgets: Budgets
    steers: Steers
    answers: Answers
    backlog: Backlog
    workers: Workers
    duties: Duties
    archive: Archive
    remote: Remote


class Watch(Protocol):
    """A reader of one job's orders that never waits for a writer."""

    def read(self, job_id: str, *, steer_seen: int) -> tuple[Orders | None, int]:
        """Orders of the job (None: no such job) and the database's time."""
        ...

    def wait(self, *, timeout: float) -> bool:
        """Return as soon as something was committed (True), or after `timeout` seconds (False)."""
        ...


class Store(Protocol):
    """The truth."""

    cold: Cold

    def write(self, durability: Durability = "full") -> AbstractContextManager[Transaction]: ...

    def read(self) -> AbstractContextManager[Transaction]: ...

    def watch(self) -> AbstractContextManager[Watch]: ...

    def announce(self, job_id: str = "") -> None:
        """Wake whoever waits for news of a job (of anything, when none is named), in this process and, soon, in others."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Settings that decisions depend on."""

    lease_ttl_ms: int = 15_000
    max_attempts: int = 3
    tenant_concurrency: int | None = None
    default_tenant: str = "local"
    resend_after_ms: int = 5_000
    #: Jobs at work at once that ask certain models.
    model_limits: tuple[ModelLimit, ...] = ()
    #: A worker that was not seen for so long does not count.
    worker_silent_ms: int = 30_000
    stuck: StuckRules = field(default_factory=StuckRules)
    stuck_policy: str = ""


@dataclass(frozen=True, kw_only=True)
class Desk:
    """What every handler has at hand."""

    store: Store
    rules: Rules
    #: Makes an id that sorts by time, with the given prefix.
    new_id: Callable[[str], str]
    #: True when a worker of this name is provably not running any more.
    is_gone: Callable[[str], bool]
    #: Pid of the worker of this name; 0 when the name does not tell.
    pid_of: Callable[[str], int]
    #: Whether a call to the model of this name has a known price.
    is_priced: Callable[[str], bool]
    #: Orders that wait for nobody.
    side: SideOrders
