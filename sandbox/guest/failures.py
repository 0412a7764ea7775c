"""How a cell failed, as data: type, message, line, and a traceback that shows the cell's own frames only."""

import traceback
from collections.abc import Callable
from types import TracebackType

from sandbox.guest.frames import JsonObject

_MESSAGE_CHARACTERS = 4_000
_TRACEBACK_CHARACTERS = 8_000
_CHAIN = 8


def describe(
    error: BaseException, *, files: frozenset[str], hint: Callable[[BaseException], str]
) -> JsonObject:
    """Describe an exception whose own methods may be hostile: nothing it does may stop the description."""
    advice = _safely(lambda: hint(error), "")
    message = _safely(lambda: str(error), "<no readable message>")[:_MESSAGE_CHARACTERS]
    return {
        "type": _safely(lambda: type(error).__name__, "Exception")[:200],
        "message": f"{message} ({advice})" if advice else message,
        "line": _line(error, files),
        "traceback": _safely(lambda: _own_traceback(error, files), "")[-_TRACEBACK_CHARACTERS:],
    }


def _safely(text: Callable[[], str], otherwise: str) -> str:
    try:
        return str.__str__(str(text()))  # a real str: a subclass has methods of its own
    except BaseException:  # noqa: BLE001 - the methods of an exception and of its class are the cell's code
        return otherwise


def _line(error: BaseException, files: frozenset[str]) -> int | None:
    """Return the innermost line of a cell; a mistake of syntax has its line with it."""
    try:
        return _syntax_line(error, files) or _innermost_line(error, files)
    except BaseException:  # noqa: BLE001 - what an exception says of itself is the cell's code, too
        return None


def _syntax_line(error: BaseException, files: frozenset[str]) -> int | None:
    if not isinstance(error, SyntaxError) or type(error.filename) is not str or error.filename not in files:
        return None
    return int(error.lineno) if type(error.lineno) is int and error.lineno > 0 else None


def _innermost_line(error: BaseException, files: frozenset[str]) -> int | None:
    line, step = None, _traceback_of(error)
    while step is not None:
        if step.tb_frame.f_code.co_filename in files:
            line = step.tb_lineno
        step = step.tb_next
    return line


def _own_traceback(error: BaseException, files: frozenset[str]) -> str:
    report = traceback.TracebackException(type(error), error, _traceback_of(error), limit=-200)
    linked: traceback.TracebackException | None = report
    for _ in range(_CHAIN):
        if linked is None:
            break
        own = [frame for frame in linked.stack if frame.filename in files]
        linked.stack = traceback.StackSummary.from_list(own)
        linked = linked.__cause__ or linked.__context__
    else:
        assert linked is not None
        linked.__cause__ = linked.__context__ = None
    return "".join(report.format())


def _traceback_of(error: BaseException) -> TracebackType | None:
    """Return where it was raised, whatever a property of its class says."""
    found = vars(BaseException)["__traceback__"].__get__(error)
    return found if isinstance(found, TracebackType) else None
