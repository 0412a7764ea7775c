"""`custody models`: the embedded models of this machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table
from rich.text import Text

from controlplane import worker_parts
from controlplane.cli.consoles import stdout_console
from controlplane.cli.figures import size
from controlplane.cli.flags import json_flag
from controlplane.cli.shapes import write_json

OnProgress = Callable[[int, int, str], None]


@click.group()
def models() -> None:
    """List, pull and remove embedded models."""


@models.command("list")
@json_flag
def list_models(*, as_json: bool) -> None:
    """List the embedded models, and what each is good for.

    JSON keys: models [name, size_bytes, sha256, licence, good_for, is_default, is_installed, is_verified, partial_bytes],
    keys [names of the provider keys that are set].
    """
    found = worker_parts.local_models()
    if as_json:
        write_json({"models": [model.document() for model in found], "keys": worker_parts.provider_keys()})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("model", "size", "here", "good for"):
        table.add_column(name, no_wrap=name != "good for", overflow="fold")
    for model in found:
        name = f"{model.name} (default)" if model.is_default else model.name
        table.add_row(
            Text(name), size(model.size_bytes), _presence(model), Text(f"{model.good_for}; {model.licence}")
        )
    console = stdout_console()
    console.print(table)
    keys = ", ".join(worker_parts.provider_keys()) or "none"
    console.print(
        f"Provider keys set: {keys}. Any OpenAI-compatible server: --model http://host:port/v1#name",
        markup=False,
    )


def _presence(model: worker_parts.LocalModel) -> str:
    if model.is_installed:
        return "yes" if model.is_verified else "yes, not verified"
    return f"{size(model.partial_bytes)} so far" if model.partial_bytes else "no"


@models.command()
@click.argument("name")
@click.option(
    "--from", "source", type=click.Path(path_type=Path), help="A GGUF file you have, instead of a download."
)
@json_flag
def pull(name: str, *, source: Path | None, as_json: bool) -> None:
    """Get a model onto this machine: resumable, once per machine, always the pinned digest.

    JSON keys: name, path.
    """
    with download_progress(silent=as_json) as on_progress:
        path = worker_parts.pull_model(name, source_file=source, on_progress=on_progress)
    if as_json:
        write_json({"name": name, "path": str(path)})
    else:
        click.echo(f"{name} is here: {path}")


@models.command()
@click.argument("name")
@json_flag
def rm(name: str, *, as_json: bool) -> None:
    """Remove a model's file and what a broken pull left.

    JSON keys: name, changed.
    """
    changed = worker_parts.remove_model(name)
    if as_json:
        write_json({"name": name, "changed": changed})
    else:
        click.echo(f"{name} removed" if changed else f"{name} was not here")


@contextmanager
def download_progress(*, silent: bool) -> Iterator[OnProgress]:
    """A progress bar on a terminal, a line a tenth on a pipe, nothing when silent."""
    console = Console(stderr=True)
    if silent:
        yield lambda _done, _total, _what: None
    elif not console.is_terminal:
        yield _in_tenths()
    else:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("model", total=None)
            yield lambda done, total, what: bar.update(task, completed=done, total=total, description=what)


def _in_tenths() -> OnProgress:
    last = ""

    def tell(done: int, total: int, what: str) -> None:
        nonlocal last
        line = f"{what}: {10 * (10 * done // max(total, 1))} % of {size(total)}"
        if line != last:
            last = line
            click.echo(line, err=True)

    return tell
