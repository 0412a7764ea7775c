"""How a cell failed, as data: type, message, line, and a traceback that shows the cell's own frames only."""

import traceback

from sandbox.guest.frames import JsonObject

_MESSAGE_CHARACTERS = 4_000
_TRACEBACK_CHARACTERS = 8_000
_CHAIN = 8


def describe(error: BaseException, *, files: frozenset[str]) -> JsonObject:
    """Describe an exception whose own methods may be hostile: nothing it does may stop the description."""
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001 - an exception's __str__ is the cell's code
        message = "<the exception has no readable message>"
    try:
        shown = _own_traceback(error, files)
    except BaseException:  # noqa: BLE001 - so are its __cause__ and its class
        shown = ""
    return {
        "type": type(error).__name__[:200],
        "message": message[:_MESSAGE_CHARACTERS],
        "line": _line(error, files),
        "traceback": shown[-_TRACEBACK_CHARACTERS:],
    }


def _line(error: BaseException, files: frozenset[str]) -> int | None:
    """Return the innermost line of a cell; a mistake of syntax has its line with it."""
    if isinstance(error, SyntaxError) and error.filename in files:
        return error.lineno
    line, step = None, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename in files:
            line = step.tb_lineno
        step = step.tb_next
    return line


def _own_traceback(error: BaseException, files: frozenset[str]) -> str:
    report = traceback.TracebackException.from_exception(error, limit=-200)
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
