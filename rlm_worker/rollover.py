"""A conversation that starts anew: the brief of what was done, always made from the record, never from a brief before it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rlm_worker.contracts import JsonObject, digest
from rlm_worker.contracts.course import RolledOver
from rlm_worker.contracts.result import Proposal
from rlm_worker.drivers.driver import Cell, Step
from rlm_worker.journal import NodeJournal
from rlm_worker.marking import defused, marked
from rlm_worker.models.port import Message, input_token_bound
from rlm_worker.prompts import clip

#: The latest turns go on in the new conversation as they were said.
KEPT = 1
_LINE_CHARS = 120
_LINES = 200
_DRAFT_CHARS = 8_000
_NOTES_CHARS = 8_000
_VARIABLES_CHARS = 6_000


@dataclass(frozen=True, kw_only=True)
class WorkingSet:
    """What a REPL holds on to beside its task: from the record, whatever conversation it came up in."""

    draft: JsonObject | None
    notes: tuple[Proposal, ...]
    #: What the operator asked, oldest first: all of it is in force.
    steers: tuple[str, ...]
    steps: tuple[Step, ...]
    variables: str
    trace_events: int


def is_due(messages: Sequence[Message], *, steps: int, limit: int) -> bool:
    """Whether the conversation is past its threshold and something can be left out of it."""
    return steps > KEPT and input_token_bound(messages) > limit


def can_roll_over(node: NodeJournal, *, iteration: int, most: int) -> bool:
    """Whether the conversation that asks for this turn may start anew: it has not yet for this turn, nor too often."""
    last = node.rollovers[-1] if node.rollovers else None
    if len(node.rollovers) >= most or (last is not None and last.iteration >= iteration):
        return False
    return iteration - 1 - (last.covers_to if last else 0) > KEPT


def threshold(node: NodeJournal, *, limit: int, most: int) -> int:
    """The length past which a conversation starts anew: the one set, or less where as much did not fit before."""
    if len(node.rollovers) >= most:
        return limit
    return min(
        [limit, *(found.tokens_before - 1 for found in node.rollovers if found.reason == "did_not_fit")]
    )


def brief(work: WorkingSet, *, covers_to: int, seed: str) -> str:
    """The working set, one line per finished turn, the variables, and where the rest can be read."""
    seed = f"{seed}/brief/{covers_to}"
    begun = (
        f"The conversation was long and starts anew here. Turns 1 to {covers_to} are done and are not to be done again; "
        f"their variables are still in the REPL. They stand whole in the trace (events 1 to {work.trace_events})."
    )
    turns = marked("\n".join(_lines(work.steps, covers_to)), seed=f"{seed}/turns")
    variables = marked(clip(work.variables, _VARIABLES_CHARS), seed=f"{seed}/variables")
    parts = [begun, f"Done so far, a line per turn:\n{turns}", f"Variables in the REPL:\n{variables}"]
    if work.draft is not None:
        said = clip(json.dumps(work.draft, ensure_ascii=False, sort_keys=True), _DRAFT_CHARS)
        parts.append("Your DRAFT:\n" + marked(said, seed=f"{seed}/draft"))
    if work.notes:
        said = "\n".join(f"- {note.body.get('kind')}: {note.body.get('text')}" for note in work.notes)
        parts.append("Your notes:\n" + marked(clip(said, _NOTES_CHARS), seed=f"{seed}/notes"))
    if work.steers:
        *earlier, last = work.steers
        parts += [f"The operator asked before: {steer}" for steer in earlier]
        parts.append(f"The operator's last instruction: {last}")
    return "\n\n".join(parts)


def rolled_over(
    text: str, *, node: str, number: int, covers_to: int, before: Sequence[Message], after: Sequence[Message]
) -> RolledOver:
    """The event, without its place in the trace. The messages before and after are told by digest and size."""
    left_out = [[message.role, message.content] for message in before]
    return RolledOver(
        node=node,
        iteration=covers_to + KEPT + 1,
        number=number,
        covers_to=covers_to,
        brief=text,
        brief_digest=digest(text),
        left_out_digest=digest(left_out),
        tokens_before=input_token_bound(before),
        tokens_after=input_token_bound(after),
        trace_events=0,
    )


def _lines(steps: Sequence[Step], covers_to: int) -> list[str]:
    lines = [_line(step) for step in steps if step.iteration <= covers_to]
    if len(lines) <= _LINES:
        return lines
    half = _LINES // 2
    return [*lines[:half], f"… {len(lines) - _LINES} turns: see the trace …", *lines[-half:]]


def _line(step: Step) -> str:
    """One turn in a line: what it was for, and how it ended."""
    if not isinstance(step.turn, Cell) or step.outcome is None:
        return f"{step.iteration}. no cell"
    what = " ".join((step.turn.reasoning or step.turn.code).split())
    cell = step.outcome
    ended = cell.outcome if cell.outcome != "error" else f"{cell.error_type} in line {cell.error_line}"
    return f"{step.iteration}. {defused(what)[:_LINE_CHARS]} → {ended}, printed {cell.stdout_bytes:,} bytes"
