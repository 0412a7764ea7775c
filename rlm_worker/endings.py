"""How a REPL ends: values, never exceptions."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from rlm_worker.contracts import JsonObject
from rlm_worker.contracts.job import Dimension
from rlm_worker.contracts.result import FailureClass
from rlm_worker.errors import WaitReason


@dataclass(frozen=True)
class Submitted:
    """SUBMIT was accepted."""

    fields: JsonObject


@dataclass(frozen=True)
class Exhausted:
    """A limit ended the REPL. `fields` holds what was submitted in the closing turn, if anything."""

    dimension: Dimension
    limit: str
    spent: str
    detail: str = ""
    fields: JsonObject | None = None

    @property
    def message(self) -> str:
        said = f"budget {self.dimension} is exhausted: limit {self.limit}, used or held {self.spent}"
        return f"{said} ({self.detail})" if self.detail else said


@dataclass(frozen=True)
class Failed:
    """The REPL cannot go on."""

    failure_class: FailureClass
    message: str


@dataclass(frozen=True)
class Extracted:
    """The answer was read out of the history, because nobody gave one."""

    fields: JsonObject
    cause: Exhausted

    @property
    def message(self) -> str:
        return f"{self.cause.message} [the answer was extracted from the history]"


@dataclass(frozen=True)
class Stopped:
    """An operator ended the REPL. `fields` holds what was submitted in the turn it still had, if anything."""

    order: Literal["stop", "kill"]
    reason: str = ""
    fields: JsonObject | None = None

    @property
    def message(self) -> str:
        return f"{self.order} was ordered" + (f": {self.reason}" if self.reason else "")


@dataclass(frozen=True)
class Waits:
    """The job has to wait for something outside; it is not over."""

    reason: WaitReason
    detail: str
    not_before: datetime | None = None


Ending = Submitted | Exhausted | Failed | Extracted | Stopped | Waits
