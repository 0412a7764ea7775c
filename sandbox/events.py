"""What a running cell tells its host, and how killing a session ended: values only."""

from dataclasses import dataclass, field
from typing import Literal

from sandbox.guest.frames import JsonObject

Stream = Literal["stdout", "stderr"]
Outcome = Literal["ok", "error", "ended", "timed_out", "interrupted", "crashed", "violation"]
Limit = Literal["cpu", "memory"]


@dataclass(frozen=True, kw_only=True)
class Output:
    """Text as it arrives: decoded with replacement, control characters escaped."""

    stream: Stream
    text: str


@dataclass(frozen=True, kw_only=True)
class HostCall:
    """A declared call that waits for `Session.answer` or `Session.refuse`; several may wait at once."""

    call_id: int
    name: str
    payload: JsonObject


@dataclass(frozen=True, kw_only=True)
class ClockRead:
    """Times that code read from its clock, before whatever it does next: given to `execute` again, it reads them again."""

    read: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Draft(HostCall):
    """The declared call `draft`: the answer so far."""


@dataclass(frozen=True, kw_only=True)
class Submit(HostCall):
    """The declared call `submit`: the answer. Answered, it ends the cell."""


@dataclass(frozen=True, kw_only=True)
class CellError:
    type: str
    message: str
    line: int | None
    traceback: str


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The last event of every cell."""

    outcome: Outcome
    error: CellError | None
    stdout: str
    stderr: str
    # True totals, also of what was not kept.
    stdout_bytes: int
    stderr_bytes: int
    cpu_ms: int
    memory_bytes: int
    # The session is dead and its variables with it.
    state_lost: bool
    detail: str
    # The limit at which the kernel killed the code, when that is how the cell ended.
    limit: Limit | None = None
    # A digest of each variable that the cell changed; empty where it is gone.
    variables: dict[str, str] = field(default_factory=dict)


Event = Output | HostCall | ClockRead | Finished


@dataclass(frozen=True, kw_only=True)
class KillReport:
    duration_ms: float
    # Process ids that could not be ended; empty unless the kernel holds one back.
    survivors: tuple[int, ...]
