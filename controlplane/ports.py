"""What handlers need of the outside: a store with short transactions. Rows are plain values; adapters give them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import JsonValue

from controlplane.domain.budget import NOTHING, Account, Amounts, Limits
from controlplane.domain.identity import Role, Scope
from controlplane.domain.job_state import JobState
from controlplane.domain.lease import Lease
from controlplane.domain.receipts import Link
from controlplane.domain.task import TaskState
from controlplane.remote_ports import Remote
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
class Wake:
    """A wake-up that waits to be sent."""

    outbox_id: int
    job_id: str
    generation: int


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a worker must know between two writes."""

    desired: Desired
    reason: str
    lease: Lease | None
    steers: tuple[Steer, ...] = ()


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
class KeyRow:
    """A key of the API: whose it is and what it may do. Its secret is not here."""

    key_id: str
    #: Empty: of no tenant, for those who look after all of them.
    tenant_id: str
    principal: str
    roles: frozenset[Role]
    secret_hash: str
    note: str = ""
    created_ms: int
    created_by: str
    expires_ms: int | None = None
    revoked_ms: int | None = None
    revoked_by: str = ""
    used_ms: int | None = None

    def is_valid(self, now_ms: int) -> bool:
        return self.revoked_ms is None and (self.expires_ms is None or now_ms < self.expires_ms)


class Jobs(Protocol):
    """Whoever reads says whose rows they may see: no query can forget it."""

    def get(self, job_id: str, *, scope: Scope) -> JobRow | None: ...

    def spec(self, job_id: str) -> str: ...

    def add(self, row: JobRow, *, spec: str) -> None: ...

    def save(self, row: JobRow) -> None: ...

    def save_recorded(self, row: JobRow) -> None:
        """Save only what recording changes: the account, the end of the trace, and when."""
        ...

    def with_prefix(self, prefix: str, *, scope: Scope, limit: int) -> list[str]: ...

    def latest(self, *, scope: Scope, limit: int, state: str | None, before: str | None) -> list[JobRow]: ...

    def of_task(self, task_id: str) -> list[str]: ...

    def undispatched(
        self, *, older_than_ms: int, jobs: frozenset[str] | None, limit: int
    ) -> list[tuple[str, int]]:
        """Ready jobs and their generations that were not sent since; with `jobs`, only those."""
        ...

    def mark_dispatched(self, job_id: str) -> None: ...

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

    def seen(self, worker_id: str) -> None: ...


class History(Protocol):
    def append_events(self, task_id: str, links: Sequence[Link], *, actor: str) -> None: ...

    def events(self, task_id: str, *, after: int = -1) -> list[Link]: ...

    def add_receipts(self, task_id: str, rows: Sequence[ReceiptRow]) -> None: ...

    def receipts(self, task_id: str) -> list[ReceiptRow]: ...

    def save_checkpoint(self, task_id: str, *, seq: int, state: dict[str, Any], digest: str) -> None: ...

    def checkpoint(self, task_id: str) -> tuple[int, dict[str, Any], str] | None:
        """Newest checkpoint: the sequence it stands at, the state, its digest."""
        ...


class Traces(Protocol):
    def append(self, job_id: str, records: Sequence[TraceRecord]) -> None: ...

    def read(self, job_id: str, *, after: int, limit: int) -> list[TraceRecord]: ...

    def last(self, job_id: str, *, kind: str) -> TraceRecord | None:
        """The newest event of a kind."""
        ...

    def of_kind(self, job_id: str, *, kind: str) -> list[TraceRecord]:
        """Every event of a kind that is rare."""
        ...

    def checked(self, job_id: str) -> Iterator[TraceRecord]:
        """Whole trace, read so that a changed byte of the stored text raises Tampered."""
        ...


class Budgets(Protocol):
    def get(self, budget_id: str) -> Account: ...

    def save(self, budget_id: str, account: Account) -> None: ...

    def set_limits(self, budget_id: str, limits: Limits) -> None: ...

    def enter(self, entry: LedgerEntry) -> None: ...

    def entries(self, budget_id: str) -> list[LedgerEntry]: ...


class Outbox(Protocol):
    def add(self, job_id: str, *, generation: int) -> None: ...

    def due(self, *, jobs: frozenset[str] | None, limit: int) -> list[Wake]:
        """Wake-ups to send, oldest first; with `jobs`, only theirs."""
        ...

    def mark_sent(self, outbox_ids: Sequence[int]) -> None: ...


class Steers(Protocol):
    def add(self, job_id: str, *, text: str, by: str) -> int: ...

    def after(self, job_id: str, *, seen: int) -> tuple[Steer, ...]: ...


class Answers(Protocol):
    def add(self, job_id: str, *, question: int, value: JsonValue, by: str) -> None: ...

    def of(self, job_id: str) -> tuple[PersonAnswer, ...]: ...


class Keys(Protocol):
    def add(self, row: KeyRow) -> None: ...

    def get(self, key_id: str) -> KeyRow | None: ...

    def revoke(self, key_id: str, *, by: str) -> None: ...

    def mark_used(self, key_id: str) -> None: ...


class Transaction(Protocol):
    """Everything one decision reads and writes. Leaving it normally commits; an exception undoes all of it."""

    #: The database's clock, read once.
    now_ms: int
    jobs: Jobs
    tasks: Tasks
    leases: Leases
    history: History
    traces: Traces
    budgets: Budgets
    outbox: Outbox
    steers: Steers
    answers: Answers
    keys: Keys
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

    def write(self, durability: Durability = "full") -> AbstractContextManager[Transaction]: ...

    def read(self) -> AbstractContextManager[Transaction]: ...

    def watch(self) -> AbstractContextManager[Watch]: ...

    def announce(self) -> None:
        """Wake everyone in this process who waits for a change."""
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
