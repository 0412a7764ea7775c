"""The budget of one job tree while it runs: hold before spend, at every ancestor. Single-threaded; knows no store."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from pydantic import JsonValue

from rlm_worker.contracts.job import Budget, Dimension
from rlm_worker.contracts.result import ModelUsage, Usage
from rlm_worker.contracts.trace import (
    CellFinished,
    ChildStarted,
    DraftRecorded,
    Hold,
    HostCallFinished,
    ModelAnswered,
    ModelAsked,
    ProposalMade,
    Spend,
    SubcallFinished,
    SubcallLost,
    SubcallStarted,
    SubmitRejected,
    TraceEvent,
)
from rlm_worker.errors import BudgetExceeded


@dataclass
class _Tally:
    """Counters of one level; tokens and cost twice: spent, and held for calls under way."""

    iterations: int = 0
    subcalls: int = 0
    cached: int = 0
    host_calls: int = 0
    output_bytes: int = 0
    cpu_ms: int = 0
    memory_bytes: int = 0
    deepest: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = Decimal(0)
    held_input: int = 0
    held_output: int = 0
    held_cost: Decimal = Decimal(0)
    by_model: dict[str, ModelUsage] = field(default_factory=dict)


#: The name under which `budget()` shows what is left of each dimension.
SHOWN_AS: dict[Dimension, str] = {
    "iterations": "iterations",
    "subcalls": "subcalls",
    "depth": "depth",
    "wall_time": "seconds",
    "tokens": "tokens",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cost": "usd",
    "host_calls": "host_calls",
    "output_bytes": "output_bytes",
    "sandbox_cpu": "cpu_ms",
    "sandbox_memory": "memory_bytes",
}


class Meter:
    """Limits and counters of a job, or of a child carved from it."""

    def __init__(
        self,
        budget: Budget,
        *,
        parent: "Meter | None" = None,
        already_ms: int = 0,
        has_closing_turn: bool = False,
        closing_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.budget = budget
        self._parent = parent
        self._clock = clock
        self._started = clock() - already_ms / 1000
        self._tally = _Tally()
        self._closing_seconds = closing_seconds
        #: Share of tokens and cost that only the closing turn may use.
        self._reserve = budget.closing_reserve if has_closing_turn else 0.0
        self._reserve_seconds = _reserved(budget, least=closing_seconds) if has_closing_turn else 0.0
        self._holds: dict[int, tuple[str, Hold]] = {}

    def _line(self) -> Iterator["Meter"]:
        level: Meter | None = self
        while level is not None:
            yield level
            level = level._parent

    @property
    def _root(self) -> "Meter":
        return self if self._parent is None else self._parent._root

    def retune(self, budget: Budget) -> None:
        """Work under other limits from now on. What was kept for a closing turn that has begun stays spent."""
        has_reserve = self._reserve > 0 or self._reserve_seconds > 0
        self.budget = budget
        if has_reserve:
            self._reserve = budget.closing_reserve
            self._reserve_seconds = _reserved(budget, least=self._closing_seconds)

    def hold(self, ordinal: int, hold: Hold, *, model: str) -> None:
        """Set aside what a call may cost, at every ancestor, or refuse before anything is spent."""
        for level in self._line():
            level._check(hold)
        for level in self._line():
            level._apply_hold(ordinal, hold, model)

    def can_hold(self, hold: Hold) -> BudgetExceeded | None:
        """The refusal that this hold would meet, if any."""
        try:
            for level in self._line():
                level._check(hold)
        except BudgetExceeded as refusal:
            return refusal
        return None

    def open_reserve(self) -> None:
        """The closing turn has come: what was kept for it may be spent. What an ancestor keeps stays the ancestor's."""
        self._reserve = self._reserve_seconds = 0.0

    def settle(self, ordinal: int, spend: Spend) -> None:
        """Replace a hold by what the call did cost."""
        for level in self._line():
            level._apply_spend(ordinal, spend)

    def charge(self, ordinal: int) -> Hold:
        """The outcome of a call is unknown: its hold counts as spent."""
        _, hold = self._holds[ordinal]
        self.settle(ordinal, whole(hold))
        return hold

    def release(self, ordinal: int) -> None:
        """A call never left: its hold is given back whole."""
        for level in self._line():
            level._undo_hold(ordinal)

    def open_holds(self) -> tuple[int, ...]:
        """Calls that are held and not settled."""
        return tuple(self._holds)

    def restore(self, event: TraceEvent) -> None:
        """Enter, at this level alone, what an earlier attempt has recorded, without asking whether it was allowed."""
        match event:
            case SubcallStarted() | ModelAsked():
                self._apply_hold(event.ordinal, event.hold, event.model)
            case SubcallFinished() | ModelAnswered() if event.ordinal in self._holds:
                self._apply_spend(event.ordinal, event.spend)
            case SubcallLost(charged=charged) if charged == Hold():
                self._undo_hold(event.ordinal)
            case SubcallLost():
                self._apply_spend(event.ordinal, whole(event.charged))
            case CellFinished():
                output = event.stdout_bytes + event.stderr_bytes
                self._add_cell(output, event.cpu_ms, event.memory_bytes)
            case ChildStarted():
                self._tally.deepest = max(self._tally.deepest, event.child_id.count("."))
            case HostCallFinished():
                self._tally.host_calls += event.ok or _was_requested(event)
                self._tally.output_bytes += transferred(event.answer) if event.ok else 0
            case DraftRecorded() | ProposalMade() | SubmitRejected():
                self._tally.host_calls += 1
            case _:
                pass

    def restore_iterations(self, count: int) -> None:
        self._tally.iterations = count

    def begin_iteration(self) -> None:
        for level in self._line():
            level._limit("iterations", level._tally.iterations + 1, level.budget.max_iterations)
        for level in self._line():
            level._tally.iterations += 1

    def count_host_call(self) -> None:
        for level in self._line():
            level._limit("host_calls", level._tally.host_calls + 1, level.budget.max_host_calls)
        for level in self._line():
            level._tally.host_calls += 1

    def count_transfer(self, size: int) -> None:
        """What came from the network counts as output: it stands in the trace like what cells print."""
        for level in self._line():
            level._limit("output_bytes", level._tally.output_bytes + size, level.budget.max_output_bytes)
        for level in self._line():
            level._tally.output_bytes += size

    def count_cached(self) -> None:
        for level in self._line():
            level._tally.cached += 1

    def count_cell(self, *, output_bytes: int, cpu_ms: int, memory_bytes: int) -> None:
        """Add what a finished cell used; whether that passed a limit is asked by `check_cell`."""
        for level in self._line():
            level._add_cell(output_bytes, cpu_ms, memory_bytes)

    def _add_cell(self, output_bytes: int, cpu_ms: int, memory_bytes: int) -> None:
        tally = self._tally
        tally.output_bytes += output_bytes
        tally.cpu_ms += cpu_ms
        tally.memory_bytes = max(tally.memory_bytes, memory_bytes)

    def check_cell(self) -> None:
        """Refuse to go on after cells that printed or computed more than allowed."""
        for level in self._line():
            level._limit("output_bytes", level._tally.output_bytes, level.budget.max_output_bytes)
            level._limit("sandbox_cpu", level._tally.cpu_ms, level.budget.max_sandbox_cpu_ms)

    def check_depth(self, depth: int) -> None:
        for level in self._line():
            level._limit("depth", depth, level.budget.max_depth)
            level._tally.deepest = max(level._tally.deepest, depth)

    def check_time(self) -> None:
        """Refuse to go on when the time to work is over; what is kept for the closing turn is not part of it."""
        if self.seconds_left() <= 0:
            limit = f"{self.budget.max_wall_time_ms / 1000:g} s"
            own = self._root._seconds() - self._root._reserve_seconds
            raise BudgetExceeded("wall_time", limit=limit, spent=limit, of_job=own <= 0)

    def seconds_left(self) -> float:
        """Time to work: what each level keeps for its closing turn is left out."""
        return min(level._seconds() - level._reserve_seconds for level in self._line())

    def hard_seconds_left(self) -> float:
        """Time until everything at this level must be over, its closing turn included."""
        return self._seconds() if self._parent is None else min(self._seconds(), self._parent.seconds_left())

    def _seconds(self) -> float:
        return self.budget.max_wall_time_ms / 1000 - (self._clock() - self._started)

    def left(self) -> dict[str, int | float | str | None]:
        """What `budget()` shows in a cell: every dimension, at the level that has least. None means: not limited."""
        return self._least([level._left(0.0) for level in self._line()])

    def spendable(self) -> dict[str, int | float | str | None]:
        """What is left without what each level keeps for its closing turn: the most that a child can be given."""
        return self._least([level._left(level._reserve) for level in self._line()])

    def _least(self, levels: list[dict[str, Decimal | None]]) -> dict[str, int | float | str | None]:
        least: dict[str, int | float | str | None] = {}
        for name in levels[0]:
            limits = [figure for level in levels if (figure := level[name]) is not None]
            figure = min(limits, default=None)
            least[name] = None if figure is None else str(figure) if name == "usd" else int(figure)
        return {**least, "seconds": round(max(0.0, self.seconds_left()), 1)}

    def _left(self, reserve: float) -> dict[str, Decimal | None]:
        spent, budget, share = self._tally, self.budget, 1 - Decimal(str(reserve))
        into, out = spent.input_tokens + spent.held_input, spent.output_tokens + spent.held_output
        cost = (spent.cost or Decimal(0)) + spent.held_cost

        def less(
            limit: int | Decimal | None, used: int | Decimal, share: Decimal = Decimal(1)
        ) -> Decimal | None:
            return None if limit is None else limit * share - used

        return {
            "iterations": less(budget.max_iterations, spent.iterations),
            "subcalls": less(budget.max_subcalls, spent.subcalls),
            "depth": less(budget.max_depth, sum(1 for _ in self._line()) - 1),
            "tokens": less(budget.max_tokens, into + out, share),
            "input_tokens": less(budget.max_input_tokens, into, share),
            "output_tokens": less(budget.max_output_tokens, out, share),
            "usd": less(budget.max_cost_usd, cost, share),
            "host_calls": less(budget.max_host_calls, spent.host_calls),
            "output_bytes": less(budget.max_output_bytes, spent.output_bytes),
            "cpu_ms": less(budget.max_sandbox_cpu_ms, spent.cpu_ms),
            "memory_bytes": less(budget.max_sandbox_memory_bytes, 0),
        }

    def usage(self) -> Usage:
        tally = self._tally
        return Usage(
            iterations=tally.iterations,
            subcalls=tally.subcalls,
            answered_from_journal=tally.cached,
            host_calls=tally.host_calls,
            depth=tally.deepest,
            wall_time_ms=max(0, int((self._clock() - self._started) * 1000)),
            input_tokens=tally.input_tokens,
            output_tokens=tally.output_tokens,
            cost_usd=tally.cost,
            output_bytes=tally.output_bytes,
            sandbox_cpu_ms=tally.cpu_ms,
            sandbox_memory_bytes=tally.memory_bytes,
            by_model=dict(tally.by_model),
        )

    def _check(self, hold: Hold) -> None:
        tally, budget = self._tally, self.budget
        into = tally.input_tokens + tally.held_input + hold.input_tokens
        out = tally.output_tokens + tally.held_output + hold.output_tokens
        self._limit("subcalls", tally.subcalls + hold.subcalls, budget.max_subcalls)
        self._limit("input_tokens", into, self._usable(budget.max_input_tokens))
        self._limit("output_tokens", out, self._usable(budget.max_output_tokens))
        self._limit("tokens", into + out, self._usable(budget.max_tokens))
        if budget.max_cost_usd is None:
            return
        if hold.cost_usd is None or tally.cost is None:
            detail = "the price of this model is unknown; limit tokens instead of usd, or set its price"
            raise BudgetExceeded("cost", limit=budget.max_cost_usd, spent="unknown", detail=detail)
        usable = budget.max_cost_usd * (1 - Decimal(str(self._reserve)))
        self._limit("cost", tally.cost + tally.held_cost + hold.cost_usd, usable)

    def _usable(self, tokens: int | None) -> int | None:
        return None if tokens is None else int(tokens * (1 - self._reserve))

    def _limit(self, dimension: Dimension, would_be: int | Decimal, limit: int | Decimal | None) -> None:
        if limit is not None and would_be > limit:
            raise BudgetExceeded(dimension, limit=limit, spent=would_be, of_job=self._parent is None)

    def _apply_hold(self, ordinal: int, hold: Hold, model: str) -> None:
        tally = self._tally
        self._holds[ordinal] = (model, hold)
        tally.subcalls += hold.subcalls
        tally.held_input += hold.input_tokens
        tally.held_output += hold.output_tokens
        tally.held_cost += hold.cost_usd or 0

    def _drop_hold(self, ordinal: int) -> tuple[str, Hold]:
        tally = self._tally
        model, hold = self._holds.pop(ordinal)
        tally.held_input -= hold.input_tokens
        tally.held_output -= hold.output_tokens
        tally.held_cost -= hold.cost_usd or 0
        return model, hold

    def _undo_hold(self, ordinal: int) -> None:
        _, hold = self._drop_hold(ordinal)
        self._tally.subcalls -= hold.subcalls

    def _apply_spend(self, ordinal: int, spend: Spend) -> None:
        tally = self._tally
        model, _ = self._drop_hold(ordinal)
        tally.input_tokens += spend.input_tokens
        tally.output_tokens += spend.output_tokens
        tally.cost = _plus(tally.cost, spend.cost_usd)
        before = tally.by_model.get(model, ModelUsage())
        tally.by_model[model] = ModelUsage(
            calls=before.calls + 1,
            input_tokens=before.input_tokens + spend.input_tokens,
            output_tokens=before.output_tokens + spend.output_tokens,
            cached_input_tokens=before.cached_input_tokens + spend.cached_input_tokens,
            cost_usd=_plus(before.cost_usd, spend.cost_usd),
        )


def transferred(answer: JsonValue) -> int:
    """Bytes of a request's answer, as they stand in the record; none for any other call."""
    body = answer.get("body") if isinstance(answer, dict) else None
    return len(body) if isinstance(body, str) else 0


def _was_requested(event: HostCallFinished) -> bool:
    """Whether a refused request was counted as a host call: all but one that met that very limit."""
    said = event.answer if isinstance(event.answer, dict) else {}
    return event.name == "network" and said.get("refused") != "host_calls"


def _reserved(budget: Budget, *, least: float) -> float:
    """Seconds of wall time for the closing turn: its share, enough for one answer, never more than half."""
    whole_seconds = budget.max_wall_time_ms / 1000
    if budget.closing_reserve == 0:
        return 0.0
    return min(max(whole_seconds * budget.closing_reserve, least), whole_seconds / 2)


def whole(hold: Hold) -> Spend:
    """A hold, spent to the last token."""
    return Spend(input_tokens=hold.input_tokens, output_tokens=hold.output_tokens, cost_usd=hold.cost_usd)


def _plus(total: Decimal | None, more: Decimal | None) -> Decimal | None:
    return None if total is None or more is None else total + more
