"""One execution of a cell: which recorded answers it is served, and whether it may ask for new ones."""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from typing import Generic, TypeVar

from rlm_worker.contracts.keeping import QuestionAnswered, QuestionAsked
from rlm_worker.contracts.result import Proposal
from rlm_worker.contracts.trace import CellFinished, ChildStarted, HostCallFinished
from rlm_worker.errors import CallRefused
from rlm_worker.journal import Outcome, Recorded

K = TypeVar("K")
T = TypeVar("T")


def is_repeatable(cell: CellFinished) -> bool:
    """Whether a cell, run again with its recorded answers, does the same: not one that the host cut off in the middle."""
    return not cell.state_lost and cell.outcome != "interrupted"


class NotRecorded(CallRefused):
    """A replayed cell asked for something that the record does not hold."""


class _Served(Generic[K, T]):
    """Recorded values by key, each handed out once, in their order; the last again and again if it was shared."""

    def __init__(self, recorded: Mapping[K, deque[T]], *, last_is_shared: bool = False) -> None:
        self._left = defaultdict(deque[T], {key: deque(values) for key, values in recorded.items()})
        self._last_is_shared = last_is_shared

    def take(self, key: K) -> T | None:
        values = self._left[key]
        if self._last_is_shared and len(values) == 1:
            return values[0]
        return values.popleft() if values else None


class Execution:
    """A cell on its way through the sandbox. `live` cells may go on where their record ends."""

    def __init__(self, recorded: Recorded, *, node: str, live: bool) -> None:
        self.node = node
        self.iteration = recorded.iteration
        self.live = live
        self.missing: list[str] = []
        #: Times that the cell read when it ran before: it reads them first.
        self.clock = tuple(recorded.clock)
        self._children = _Served[str, ChildStarted](recorded.children)
        # Equal calls under way at once had one outcome: a cell that finished asks for no more than there is.
        self._outcomes = _Served[str, Outcome](recorded.outcomes, last_is_shared=not live)
        self._host_calls = _Served[tuple[str, str], HostCallFinished](recorded.host_calls)
        self._refusals = dict(recorded.refusals)
        self._proposals = list(recorded.proposals)
        self._questions = _Served[str, QuestionAsked](recorded.questions)
        self._people = _Served[str, QuestionAnswered](recorded.people)
        self._called: Counter[tuple[str, str]] = Counter()
        #: Keys of subcalls that the cell has had an answer to.
        self._answered: set[str] = set()

    def outcome(self, key: str) -> Outcome | None:
        """What this subcall was answered when the cell ran before."""
        return self._outcomes.take(key)

    def is_repeated(self, key: str) -> bool:
        """Whether this answer was given to the cell before; the same in a repeated cell, whatever it is served from."""
        was_answered = key in self._answered
        self._answered.add(key)
        return was_answered

    def question(self, key: str) -> QuestionAsked | None:
        """The same question to a person, when the cell asked it before."""
        return self._questions.take(key)

    def person(self, key: str) -> QuestionAnswered | None:
        """What came of this question when the cell ran before."""
        return self._people.take(key)

    def child(self, key: str) -> ChildStarted | None:
        """The child that this rlm_query began when the cell ran before."""
        return self._children.take(key)

    def host_call(self, name: str, payload_digest: str) -> HostCallFinished | None:
        """What this very call was answered when the cell ran before."""
        return self._host_calls.take((name, payload_digest))

    def count(self, name: str, payload_digest: str) -> int:
        """How often this very call was made before in the cell; so a refusal is served where it happened."""
        self._called[name, payload_digest] += 1
        return self._called[name, payload_digest] - 1

    def refusal(self, name: str, payload_digest: str, calls_before: int) -> HostCallFinished | None:
        """How this call was refused when the cell ran before."""
        return self._refusals.get((name, payload_digest, calls_before))

    def proposed(self, proposal: Proposal) -> bool:
        """Whether this very proposal was recorded when the cell ran before; each counts once."""
        if proposal in self._proposals:
            self._proposals.remove(proposal)
            return True
        return False

    def must_be_live(self, what: str) -> None:
        """Refuse to ask anew while a finished cell is only being repeated."""
        if not self.live:
            self.missing.append(what)
            raise NotRecorded(f"{what} is not in the record of iteration {self.iteration}")
