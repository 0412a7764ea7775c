"""What the guest may say, checked: a frame becomes a value or a FrameError. The host's frames are made here too."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from sandbox.escaping import escape_controls
from sandbox.events import CellError
from sandbox.guest.frames import FrameError, JsonObject, JsonValue

GuestOutcome = Literal["ok", "error", "ended", "interrupted"]
_DONE_KEYS = ("t", "cell", "outcome", "error", "cpu_ms", "memory_bytes", "variables")
_OUTCOMES = frozenset({"ok", "error", "ended", "interrupted"})
_NAME_CHARACTERS = 200
_VARIABLES, _DIGEST_CHARACTERS = 1_000, 40


@dataclass(frozen=True, kw_only=True)
class Call:
    cell: int
    guest_id: int
    name: str
    payload: JsonObject


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Times that the cell has read since it last said so."""

    cell: int
    read: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Done:
    cell: int
    outcome: GuestOutcome
    error: CellError | None
    cpu_ms: int
    memory_bytes: int
    variables: dict[str, str]


def read(frame: JsonObject) -> Call | Clock | Done:
    """Turn a frame of the guest into what it means."""
    match frame.get("t"):
        case "call":
            _expect_keys(frame, "t", "cell", "id", "name", "payload")
            payload = frame["payload"]
            if not isinstance(payload, dict):
                raise FrameError("the payload of a call must be an object")
            name = _text(frame, "name", limit=_NAME_CHARACTERS)
            return Call(cell=_count(frame, "cell"), guest_id=_count(frame, "id"), name=name, payload=payload)
        case "clock":
            _expect_keys(frame, "t", "cell", "read")
            return Clock(cell=_count(frame, "cell"), read=_counts(frame["read"]))
        case "done":
            return _read_done(frame)
        case kind:
            raise FrameError(f"unknown frame {str(kind)[:40]!r}")


def _read_done(frame: JsonObject) -> Done:
    _expect_keys({"variables": {}, **frame}, *_DONE_KEYS)
    outcome = frame["outcome"]
    if not isinstance(outcome, str) or outcome not in _OUTCOMES:
        raise FrameError("unknown outcome of a cell")
    return Done(
        cell=_count(frame, "cell"),
        outcome=cast("GuestOutcome", outcome),
        error=_read_error(frame["error"]),
        cpu_ms=_count(frame, "cpu_ms"),
        memory_bytes=_count(frame, "memory_bytes"),
        variables=_read_variables(frame.get("variables", {})),
    )


def _read_variables(value: JsonValue) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > _VARIABLES:
        raise FrameError(f"variables must be an object of at most {_VARIABLES} names")
    return {
        escape_controls(name[:_NAME_CHARACTERS]): _text(value, name, limit=_DIGEST_CHARACTERS)
        for name in value
    }


def _counts(value: JsonValue) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) % 2:
        raise FrameError("the times of a cell must be pairs of whole numbers")
    if any(type(item) is not int or not 0 <= item < 1 << 63 for item in value):
        raise FrameError("the times of a cell must be whole numbers")
    return tuple(item for item in value if isinstance(item, int))


def _read_error(value: JsonValue) -> CellError | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise FrameError("the error of a cell must be an object")
    _expect_keys(value, "type", "message", "line", "traceback")
    return CellError(
        type=_text(value, "type", limit=_NAME_CHARACTERS),
        message=_text(value, "message", limit=4_000),
        line=None if value["line"] is None else _count(value, "line"),
        traceback=_text(value, "traceback", limit=8_000),
    )


def _expect_keys(frame: JsonObject, *keys: str) -> None:
    if set(frame) != set(keys):
        raise FrameError(f"a frame must have exactly the keys {', '.join(keys)}")


def _count(frame: JsonObject, key: str) -> int:
    value = frame[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise FrameError(f"{key} must be a whole number")
    return value


def _text(frame: JsonObject, key: str, *, limit: int) -> str:
    value = frame[key]
    if not isinstance(value, str) or len(value) > limit:
        raise FrameError(f"{key} must be text of at most {limit} characters")
    return escape_controls(value)


def begin_frame(*, seed: int, tools: list[str]) -> JsonObject:
    """What the guest must know before its first cell and need not know to be confined."""
    return {"t": "begin", "seed": seed, "tools": [*tools]}


def run_frame(cell: int, *, code: str, name: str, clock: Sequence[int] = ()) -> JsonObject:
    # A model can write half a character; it is shown as such and is no reason to end anything.
    whole = code.encode("utf-8", errors="replace").decode("utf-8")
    return {"t": "run", "cell": cell, "code": whole, "name": name, "clock": [*clock]}


CLOSE_FRAME: JsonObject = {"t": "close"}
