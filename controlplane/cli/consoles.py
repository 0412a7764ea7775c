"""The console that answers are printed on."""

import sys
from typing import NoReturn

from rich.console import Console


class _Console(Console):
    """Leaves a reader that goes away to the boundary of the command line, which knows its exit code."""

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def stdout_console() -> Console:
    """The console for answers; a pipe gets wide lines instead of a guess at a window."""
    return _Console() if sys.stdout.isatty() else _Console(width=160, no_color=True)
