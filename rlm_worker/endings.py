"""How a REPL ends: values, never exceptions."""

from dataclasses import dataclass

from rlm_worker.contracts import JsonObject
from rlm_worker.contracts.job import Dimension
from rlm_worker.contracts.result import FailureClass


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


Ending = Submitted | Exhausted | Failed
