"""How every list is printed: a table that fits the screen, JSON, or ids alone for the next command."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import islice
from typing import Any, Generic, Literal, TypeVar

import click
from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from controlplane.cli.consoles import stdout_console
from controlplane.cli.exits import Refusal
from controlplane.cli.safe import one_line
from controlplane.cli.shapes import write_json

Form = Literal["table", "json", "ids"]
T = TypeVar("T")

#: Columns of a screen from which on what is marked as wide has room.
WIDE = 140
_USUAL = 20
#: Between two columns, and around all of them.
_GAP, _MARGIN = 3, 2
#: No column gives way further.
_LEAST = 12


def list_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """-o, --json and -n, handed on as `form` and `limit`."""

    @wraps(command)
    def called(*args: Any, form: str, as_json: bool, **kwargs: Any) -> Any:
        return command(*args, form="json" if as_json else form, **kwargs)

    many = click.option(
        "--limit",
        "-n",
        default=_USUAL,
        show_default=True,
        type=click.IntRange(1, 100_000),
        metavar="N",
        help="As many, at most.",
    )
    as_json = click.option("--json", "as_json", is_flag=True, help="The same as -o json.")
    form = click.option(
        "-o",
        "form",
        type=click.Choice(["table", "json", "ids"]),
        default="table",
        show_default=True,
        help="ids: one a line, for 'custody stop -' and its like.",
    )
    return form(many(as_json(called)))


@dataclass(frozen=True, kw_only=True)
class Column(Generic[T]):
    """One column of a table."""

    name: str
    text: Callable[[T], str | Text]
    #: Shown only where there is room.
    is_wide: bool = False
    is_number: bool = False
    #: What is folded over lines instead of being cut.
    is_prose: bool = False
    #: What is cut where it does not fit.
    is_long: bool = False


@dataclass(frozen=True, kw_only=True)
class Listing(Generic[T]):
    """What a list holds, and how one item of it looks in each form."""

    name: str
    columns: Sequence[Column[T]]
    id_of: Callable[[T], str]
    document: Callable[[T], Any]
    #: Said instead of an empty table.
    empty: str

    def show(self, items: Iterable[T], *, form: Form, limit: int) -> None:
        if form == "ids":
            for item in islice(items, limit):
                click.echo(self.id_of(item))
            return
        found = list(islice(items, limit + 1))
        shown, more = found[:limit], len(found) > limit
        if form == "json":
            write_json({self.name: [self.document(item) for item in shown], "truncated": more})
            return
        console = stdout_console()
        if not shown:
            console.print(self.empty, markup=False, highlight=False)
            return
        console.print(self.table(shown, width=console.width))
        if more:
            console.print(f"… there are more: -n {limit * 5}", markup=False, highlight=False)

    def table(self, items: Sequence[T], *, width: int) -> RenderableType:
        columns = [column for column in self.columns if width >= WIDE or not column.is_wide]
        rows = [[_cell(column.text(item)) for column in columns] for item in items]
        widths = _fitting(columns, rows, width=width)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column, wide in zip(columns, widths, strict=True):
            table.add_column(
                column.name,
                justify="right" if column.is_number else "left",
                overflow="fold" if column.is_prose else "ellipsis",
                no_wrap=not column.is_prose,
                width=wide,
            )
        for row in rows:
            table.add_row(*row)
        return table


def _fitting(columns: Sequence[Column[T]], rows: Sequence[Sequence[Text]], *, width: int) -> list[int]:
    """How wide each column is: as it needs, and what is prose or long gives way where the screen is narrow."""
    needs = [
        max(len(column.name), *(len(row[index]) for row in rows)) for index, column in enumerate(columns)
    ]
    over = sum(needs) + _GAP * (len(columns) - 1) + _MARGIN - width
    giving = [index for index, column in enumerate(columns) if column.is_prose or column.is_long]
    for index in sorted(giving, key=lambda index: -needs[index]):
        given = min(max(over, 0), max(needs[index] - _LEAST, 0))
        needs[index] -= given
        over -= given
    return needs


def _cell(text: str | Text) -> Text:
    return text if isinstance(text, Text) else Text(one_line(text, width=1_000))


def ids_of(names: Sequence[str]) -> list[str]:
    """The names on the command line; `-` stands for those on standard input, one a line."""
    found: list[str] = []
    for name in names:
        found += sys.stdin.read().split() if name == "-" else [name]
    return list(dict.fromkeys(found))


def confirmed(words: str, *, yes: bool) -> bool:
    """Whether a person means it. Standard input may carry ids, so the terminal itself is asked; without one, --yes is needed."""
    if yes:
        return True
    try:
        with open("/dev/tty", "r+b", buffering=0) as terminal:  # noqa: PTH123  # a device, not a file
            terminal.write(f"{words} [y/N] ".encode())
            return terminal.readline().strip().lower() in (b"y", b"yes")
    except OSError:
        raise Refusal(f"{words} Nobody is here to ask: say --yes, or look first with --dry-run.") from None
