"""The console that answers are printed on."""

import sys

from rich.console import Console


def stdout_console() -> Console:
    """The console for answers; a pipe gets wide lines instead of a guess at a window."""
    return Console() if sys.stdout.isatty() else Console(width=160, no_color=True)
