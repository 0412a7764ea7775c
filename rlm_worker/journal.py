"""What a trace says has happened: cells, turns and answers, ready to be served again. Folds events; decides nothing."""

from collections import defaultdict, deque
from dataclasses import dataclass, field

from rlm_worker.contracts import JsonObject
from rlm_worker.contracts.course import NoProgress, RolledOver
from rlm_worker.contracts.job import Budget
from rlm_worker.contracts.keeping import ClockRead, Forked, QuestionAnswered, QuestionAsked
from rlm_worker.contracts.limits import AnswerExtracted, Parked, Retuned
from rlm_worker.contracts.result import Proposal
from rlm_worker.contracts.trace import (
    ArtifactsCollected,
    AttemptStarted,
    BudgetExhausted,
    CellFinished,
    CellProposed,
    CellRejected,
    ChildFinished,
    ChildStarted,
    DraftRecorded,
    EvidenceSealed,
    HostCallFinished,
    ModelAnswered,
    ModelAsked,
    ProposalMade,
    SteerObserved,
    StopObserved,
    SubcallFinished,
    SubcallLost,
    SubcallStarted,
    SubmitAccepted,
    TraceEvent,
)

Outcome = SubcallFinished | ChildFinished
Open = SubcallStarted | ModelAsked


@dataclass
class Recorded:
    """One iteration as far as it is recorded."""

    iteration: int
    asked: ModelAnswered | None = None
    proposed: CellProposed | None = None
    rejected: CellRejected | None = None
    finished: CellFinished | None = None
    outcomes: dict[str, deque[Outcome]] = field(default_factory=lambda: defaultdict(deque))
    children: dict[str, deque[ChildStarted]] = field(default_factory=lambda: defaultdict(deque))
    draft: JsonObject | None = None
    #: By name and digest of what was asked.
    host_calls: dict[tuple[str, str], deque[HostCallFinished]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    #: Refusals that follow from nothing else in the record, by name, digest and how often it was called before.
    refusals: dict[tuple[str, str, int], HostCallFinished] = field(default_factory=dict)
    steers: list[SteerObserved] = field(default_factory=list)
    proposals: list[Proposal] = field(default_factory=list)
    questions: dict[str, deque[QuestionAsked]] = field(default_factory=lambda: defaultdict(deque))
    #: What came of them.
    people: dict[str, deque[QuestionAnswered]] = field(default_factory=lambda: defaultdict(deque))
    #: Times that the cell read, in the form in which its sandbox takes them again.
    clock: list[int] = field(default_factory=list)


@dataclass
class NodeJournal:
    """What one REPL has done."""

    iterations: dict[int, Recorded] = field(default_factory=dict)
    draft: JsonObject | None = None
    submitted: JsonObject | None = None
    #: Read out of the history because nobody answered.
    extracted: JsonObject | None = None
    submitted_at: int | None = None
    #: The limit that was met, and the last iteration before it.
    exhausted: BudgetExhausted | None = None
    exhausted_after: int = 0
    proposals: list[Proposal] = field(default_factory=list)
    rollovers: list[RolledOver] = field(default_factory=list)
    #: Circles that were found, by the iteration that closed them.
    findings: dict[int, NoProgress] = field(default_factory=dict)

    def at(self, iteration: int) -> Recorded:
        return self.iterations.setdefault(iteration, Recorded(iteration))

    @property
    def last(self) -> int:
        return max(self.iterations, default=0)


class Journal:
    """The record of a whole job tree."""

    def __init__(self) -> None:
        self.nodes: dict[str, NodeJournal] = defaultdict(NodeJournal)
        self.answers: dict[str, SubcallFinished] = {}
        self.open: dict[int, Open] = {}
        self.proposals: list[Proposal] = []
        self._children: list[TraceEvent] = []
        self.sealed: dict[str, EvidenceSealed] = {}
        self.collected: ArtifactsCollected | None = None
        self.attempts = 0
        #: Iterations, and events after the first, that belong to the job whose past this one shares.
        self.inherited_iterations = 0
        self.inherited_events = 0
        self.next_ordinal = 1
        self.steer_seen = 0
        #: The last order to stop that was recorded as seen.
        self.stop_seen = ""
        #: Times in a row that the job was parked for a rate limit, without an answer in between.
        self.parks = 0
        #: The last change of the limits; 0 and None: they are those of the spec.
        self.budget_version = 0
        self.budget: Budget | None = None
        self.stdout_tail = ""
        self.stderr_tail = ""

    def below(self, child_id: str) -> list[TraceEvent]:
        """What a child and its own children have recorded."""
        return [event for event in self._children if f"{event.node}.".startswith(f"{child_id}.")]

    def close_past(self) -> None:
        """The shared past is read: what it left open was its own job's to settle, what it proposed was its own job's."""
        self.open.clear()
        self.proposals.clear()
        self.inherited_iterations = sum(len(node.iterations) for node in self.nodes.values())

    def take_ordinal(self) -> int:
        """A number no other call of this job has."""
        taken = self.next_ordinal
        self.next_ordinal += 1
        return taken

    def fold(self, event: TraceEvent) -> None:
        """Enter one recorded event."""
        if event.node:
            self._children.append(event)
        ordinal = getattr(event, "ordinal", None)
        if ordinal is not None:
            self.next_ordinal = max(self.next_ordinal, ordinal + 1)
        match event:
            case SubcallStarted() | ModelAsked():
                self.open[event.ordinal] = event
            case SubcallFinished() | ModelAnswered() | ChildFinished() | SubcallLost():
                self._fold_answer(event)
            case CellProposed() | CellRejected() | CellFinished():
                self._fold_cell(event)
            case HostCallFinished():
                self._fold_host_call(event)
            case BudgetExhausted() | AnswerExtracted() | StopObserved() | Parked():
                self._fold_end(event)
            case NoProgress():
                self.nodes[event.node].findings[event.iteration] = event
            case RolledOver():
                self.nodes[event.node].rollovers.append(event)
            case _:
                self._fold_other(event)

    def _fold_end(self, event: BudgetExhausted | AnswerExtracted | StopObserved | Parked) -> None:
        node = self.nodes[event.node]
        match event:
            case BudgetExhausted():
                node.exhausted, node.exhausted_after = event, node.last
            case AnswerExtracted():
                node.extracted = event.fields
            case StopObserved():
                self.stop_seen = event.order
            case Parked():
                self.parks += event.reason == "rate_limited"

    def _fold_answer(self, event: SubcallFinished | ModelAnswered | ChildFinished | SubcallLost) -> None:
        self.open.pop(event.ordinal, None)
        self.parks = 0 if getattr(event, "ok", False) else self.parks
        match event:
            case SubcallFinished():
                self.nodes[event.node].at(event.iteration).outcomes[event.key].append(event)
                if event.ok:
                    self.answers.setdefault(event.key, event)
            case ChildFinished():
                self.nodes[event.node].at(event.iteration).outcomes[event.key].append(event)
            case ModelAnswered(ok=True):
                self.nodes[event.node].at(event.iteration).asked = event
            case _:
                pass

    def _fold_cell(self, event: CellProposed | CellRejected | CellFinished) -> None:
        recorded = self.nodes[event.node].at(event.iteration)
        match event:
            case CellProposed():
                recorded.proposed = event
            case CellRejected():
                recorded.rejected = event
            case CellFinished():
                recorded.finished = event
                self.stdout_tail = event.stdout or self.stdout_tail
                self.stderr_tail = event.stderr or self.stderr_tail

    def _fold_host_call(self, event: HostCallFinished) -> None:
        recorded = self.nodes[event.node].at(event.iteration)
        if event.ok:
            recorded.host_calls[event.name, event.payload_digest].append(event)
        else:
            recorded.refusals[refused_call(event)] = event

    def _fold_other(self, event: TraceEvent) -> None:
        match event:
            case ChildStarted():
                self.nodes[event.node].at(event.iteration).children[event.key].append(event)
            case DraftRecorded():
                self.nodes[event.node].draft = event.fields
                self.nodes[event.node].at(event.iteration).draft = event.fields
            case SubmitAccepted():
                self.nodes[event.node].submitted = event.fields
                self.nodes[event.node].submitted_at = event.iteration
            case ProposalMade():
                self.proposals.append(event.proposal)
                self.nodes[event.node].proposals.append(event.proposal)
                self.nodes[event.node].at(event.iteration).proposals.append(event.proposal)
            case EvidenceSealed():
                self.sealed[event.name] = event
            case SteerObserved():
                self.steer_seen = max(self.steer_seen, event.steer_id)
                self.nodes[event.node].at(event.iteration).steers.append(event)
            case ArtifactsCollected():
                self.collected = event
            case AttemptStarted():
                self.attempts = max(self.attempts, event.attempt)
            case _:
                self._fold_kept(event)

    def _fold_kept(self, event: TraceEvent) -> None:
        match event:
            case ClockRead():
                self.nodes[event.node].at(event.iteration).clock.extend(event.read)
            case QuestionAsked():
                self.nodes[event.node].at(event.iteration).questions[event.key].append(event)
            case QuestionAnswered():
                self.nodes[event.node].at(event.iteration).people[event.key].append(event)
            case Retuned():
                self.budget_version, self.budget = event.version, event.budget
            case Forked():
                self.inherited_events = event.inherited
            case _:
                pass


def refused_call(event: HostCallFinished) -> tuple[str, str, int]:
    """Which call of its cell a recorded refusal answered."""
    said = event.answer if isinstance(event.answer, dict) else {}
    before = said.get("calls_before")
    return event.name, event.payload_digest, before if isinstance(before, int) else 0
