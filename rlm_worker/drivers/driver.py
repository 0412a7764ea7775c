"""The driver's protocol: given the view of a REPL, the next turn. Drivers keep no state of their own."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

from rlm_worker.contracts import JsonObject
from rlm_worker.contracts.trace import CellFinished

DriverKind = Literal["model", "playbook", "recording"]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A turn with code."""

    code: str
    reasoning: str = ""
    title: str = ""


@dataclass(frozen=True, kw_only=True)
class NoCell:
    """A turn without usable code; the reason goes back to whoever wrote it."""

    reason: str
    text: str = ""


@dataclass(frozen=True)
class Finished:
    """The driver has no more cells."""


Turn = Cell | NoCell | Finished


@dataclass(frozen=True, kw_only=True)
class Step:
    """One past iteration: what was written, and what came of it."""

    iteration: int
    turn: Cell | NoCell
    #: What the driver said in full; for a model, its raw answer.
    said: str = ""
    outcome: CellFinished | None = None
    #: What the turn was asked with, beside the history: it stays in the conversation, which only ever grows.
    notices: tuple[str, ...] = ()
    left: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class View:
    """Everything a driver may know when it writes the next turn."""

    question: str
    output_schema: JsonObject
    iteration: int
    history: tuple[Step, ...]
    evidence: tuple[str, ...] = ()
    #: What is known of the documents in it; their names are data.
    documents: str = ""
    #: What this job's sandbox offers beyond the names every REPL has.
    offers: tuple[str, ...] = ()
    inputs: JsonObject = field(default_factory=dict)
    left: JsonObject = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    #: What the conversation before this one came to, when there was one: the history holds only what came after.
    brief: str = ""
    #: Of the marks around data, different for every job.
    seed: str = ""


class Driver(Protocol):
    """Writes cells."""

    kind: DriverKind

    async def next(self, view: View) -> Turn: ...
