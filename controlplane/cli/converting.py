"""How documents that become text are told while that goes on: it can take minutes, and nothing else moves meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from controlplane.cli.safe import one_line

OnConverted = Callable[[int, int, str], None]

#: On a pipe, fewer documents than this are not worth a line.
_WORTH_TELLING = 10
_NAME_CHARS = 40


@contextmanager
def conversion_progress(*, silent: bool) -> Iterator[OnConverted]:
    """A progress bar on a terminal, a line a tenth on a pipe, nothing when silent. Shown when the first document is done."""
    console = Console(stderr=True)
    if silent:
        yield lambda _done, _total, _name: None
    elif not console.is_terminal:
        yield _in_tenths
    else:
        columns = (
            TextColumn("reading documents"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}", markup=False),
        )
        with Progress(*columns, console=console, transient=True) as bar:
            yield _on(bar)


def _on(bar: Progress) -> OnConverted:
    def tell(done: int, total: int, name: str) -> None:
        task = bar.task_ids[-1] if bar.task_ids else bar.add_task("", total=total)
        bar.update(task, completed=done, total=total, description=one_line(name, width=_NAME_CHARS))

    return tell


def _in_tenths(done: int, total: int, _name: str) -> None:
    if total >= _WORTH_TELLING and 10 * done // total > 10 * (done - 1) // total:
        click.echo(f"reading documents: {done:,} of {total:,}", err=True)
