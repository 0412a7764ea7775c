"""Does the reasoning move? Pure functions over the history of a REPL: the circles it can turn in, each with its evidence."""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from rlm_worker.contracts.course import Circle, NoProgress
from rlm_worker.drivers.driver import Cell, NoCell, Step


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How many times the same may happen before the job ends; one time before that, whoever writes the cells is told."""

    failures: int
    observations: int
    empty_turns: int


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A circle: which, in which iterations, and what is done about it."""

    circle: Circle
    iterations: tuple[int, ...]
    detail: str
    action: Literal["steered", "ended"]

    def event(self, *, node: str) -> NoProgress:
        return NoProgress(
            node=node,
            iteration=self.iterations[-1],
            detail=self.detail,
            finding=self.circle,
            action=self.action,
            iterations=self.iterations,
        )


def assess(history: Sequence[Step], patience: Patience) -> Finding | None:
    """The circle that the last turn closed, if it closed one. What ends the job comes before what only steers it."""
    found = [
        _found("repeated_failures", _equal_failures(history, patience.failures), patience.failures),
        _found(
            "repeated_observations",
            _equal_observations(history, patience.observations),
            patience.observations,
        ),
        _found("empty_turns", _empty_turns(history), patience.empty_turns),
    ]
    return max(
        (finding for finding in found if finding is not None),
        key=lambda finding: finding.action == "ended",
        default=None,
    )


def advice(finding: NoProgress) -> str:
    """What is said in the next turn to whoever turns in this circle."""
    return f"No progress: {finding.detail}. {_ADVICE[finding.finding]}"


_ADVICE: dict[Circle, str] = {
    "repeated_failures": "Do not run it again: change the approach, or SUBMIT what you have. Once more ends the job.",
    "repeated_observations": "Looking again shows the same: take the next step, or SUBMIT what you have. Once more ends the job.",
    "empty_turns": "Write one ```python block; to end the job, call SUBMIT(...) in it. Once more ends the job.",
    "subcall_storm": "Do not ask again in other words: use code, other inputs, or SUBMIT what you have. Once more ends the job.",
}

#: What differs in a message though nothing else does: the name of the cell, and where an object lay.
_PASSING = re.compile(r"<cell \d+ \d+>|\b0x[0-9a-f]+\b")

_WORDS: dict[Circle, str] = {
    "repeated_failures": "{} equivalent cells failed in the same way",
    "repeated_observations": "{} cells showed the same",
    "empty_turns": "{} turns in a row had no cell",
}


def _found(circle: Circle, iterations: tuple[int, ...], limit: int) -> Finding | None:
    count = len(iterations)
    if count < max(1, limit - 1):
        return None
    return Finding(
        circle=circle,
        iterations=iterations,
        detail=_WORDS[circle].format(count),
        action="ended" if count >= limit else "steered",
    )


def normal_form(code: str) -> str:
    """Equal for cells that differ in comments, blank lines, quotes and layout only."""
    try:
        # Without positions: they are all that layout leaves in the tree.
        return ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return " ".join(code.split())


def _failure(step: Step) -> tuple[str, ...] | None:
    cell = step.outcome
    if cell is None or not isinstance(step.turn, Cell) or cell.outcome in ("ok", "ended"):
        return None
    message = _PASSING.sub("…", cell.error_message)
    return normal_form(step.turn.code), cell.outcome, cell.error_type, message


def _equal_failures(history: Sequence[Step], limit: int) -> tuple[int, ...]:
    """Failures like the last one among the latest turns: two mistakes in turn are a circle too."""
    last = _failure(history[-1]) if history else None
    if last is None:
        return ()
    return tuple(step.iteration for step in history[-2 * limit :] if _failure(step) == last)


def _shown(step: Step) -> tuple[str, ...] | None:
    """What a cell showed; a silent one counts as the same only when its code is the same too."""
    cell = step.outcome
    if cell is None or not isinstance(step.turn, Cell) or cell.outcome != "ok":
        return None
    shown = cell.stdout, cell.stderr
    return shown if any(text.strip() for text in shown) else (*shown, normal_form(step.turn.code))


def _equal_observations(history: Sequence[Step], limit: int) -> tuple[int, ...]:
    """The same shown in a row; or by two cells in turn, while nothing else is tried: that is a circle too."""
    last = _shown(history[-1]) if history else None
    if last is None:
        return ()
    row = _trailing(history, lambda step: _shown(step) == last)
    return max(row, _in_turn(history[-2 * limit :]), key=len)


def _in_turn(steps: Sequence[Step]) -> tuple[int, ...]:
    """The turns that were the same as the last, among those at the end that were of two kinds at most."""
    kinds: set[tuple[str, ...] | None] = set()
    last, same = _did(steps[-1]), []
    for step in reversed(steps):
        kinds.add(_did(step))
        if len(kinds) > 2:
            break
        if _did(step) == last:
            same.append(step.iteration)
    return tuple(reversed(same))


def _did(step: Step) -> tuple[str, ...] | None:
    """A cell and what it led to; None for a turn without one."""
    if not isinstance(step.turn, Cell):
        return None
    came = _shown(step) or _failure(step)
    return None if came is None else (normal_form(step.turn.code), *came)


def _empty_turns(history: Sequence[Step]) -> tuple[int, ...]:
    return _trailing(history, lambda step: isinstance(step.turn, NoCell))


def _trailing(history: Sequence[Step], holds: Callable[[Step], bool]) -> tuple[int, ...]:
    iterations: list[int] = []
    for step in reversed(history):
        if not holds(step):
            break
        iterations.append(step.iteration)
    return tuple(reversed(iterations))
