"""`custody playbooks`: what ships, and what one of them asks, gives and may spend."""

import json

import click
from rich import box
from rich.console import Group, RenderableType
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from controlplane import worker_parts
from controlplane.cli.consoles import stdout_console
from controlplane.cli.flags import json_flag
from controlplane.cli.safe import printable
from controlplane.cli.shapes import write_json
from controlplane.worker_parts import Playbook
from rlm_worker.contracts.base import JsonObject


@click.group(invoke_without_command=True)
@json_flag
@click.pass_context
def playbooks(ctx: click.Context, *, as_json: bool) -> None:
    """List the shipped playbooks, or show one.

    JSON keys: playbooks [name, title, description, budget, params, output_schema, cells].
    """
    if ctx.invoked_subcommand is not None:
        return
    found = worker_parts.shipped_playbooks()
    if as_json:
        write_json({"playbooks": [_document(playbook) for playbook in found]})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("playbook", no_wrap=True)
    table.add_column("what it does")
    table.add_column("parameters")
    for playbook in found:
        table.add_row(playbook.name, Text(playbook.title), ", ".join(playbook.params or ()))
    console = stdout_console()
    console.print(table)
    console.print(
        "custody playbooks show NAME · custody run QUESTION --playbook NAME --evidence PATH", markup=False
    )


@playbooks.command()
@click.argument("name")
@click.option("--source", is_flag=True, help="Print the playbook itself, to start one of your own from.")
@json_flag
def show(name: str, *, source: bool, as_json: bool) -> None:
    """Show a shipped playbook, or a .py file of yours."""
    playbook = worker_parts.find_playbook(name)
    if as_json:
        write_json(_document(playbook) | {"source": playbook.source})
    elif source:
        console = stdout_console()
        console.print(Syntax(printable(playbook.source), "python", theme="ansi_dark"))
    else:
        stdout_console().print(_about(playbook))


def _about(playbook: Playbook) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    fields = ", ".join(_properties(playbook.output_schema or {})) or "what --output says"
    for name, value in (
        ("playbook", f"{playbook.name}: {playbook.title}"),
        ("about", playbook.description),
        ("answers with", fields),
        ("budget", playbook.budget or "the defaults"),
        ("predict by", playbook.sub_model or "the default"),
        ("cells", "\n".join(f"{number}. {title}" for number, title in enumerate(playbook.cells, 1))),
    ):
        grid.add_row(name, Text(printable(value)))
    for name, (default, about) in (playbook.params or {}).items():
        grid.add_row("--param", Text(printable(f"{name}={json.dumps(default)}   {about}")))
    return Group(grid)


def _properties(schema: JsonObject) -> list[str]:
    properties = schema.get("properties")
    return list(properties) if isinstance(properties, dict) else []


def _document(playbook: Playbook) -> JsonObject:
    return {
        "name": playbook.name,
        "title": playbook.title,
        "description": playbook.description,
        "budget": playbook.budget,
        "sub_model": playbook.sub_model,
        "params": {
            name: {"default": default, "description": about}
            for name, (default, about) in (playbook.params or {}).items()
        },
        "output_schema": playbook.output_schema,
        "cells": list(playbook.cells),
    }
