"""`custody up` and `custody api`: a home, or the stores of the settings, served over HTTP until Ctrl-C."""

from contextlib import AbstractContextManager, nullcontext

import click

from controlplane.adapters.migrate import HEAD
from controlplane.api.bodies_admin import KeyRequest
from controlplane.api.server import serving
from controlplane.bootstrap import App
from controlplane.cli.exits import Exit
from controlplane.cli.flags import home_flag
from controlplane.cli.home import opened_home
from controlplane.cli.inside import client_inside
from controlplane.cli.watch import Presses
from controlplane.config import without_password
from controlplane.runtime import EmbeddedRuntime, WatchdogRuntime

#: What `custody up` listens at when nothing is said.
PORT = 8420
_LOOK_SECONDS = 1.0


_host = click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
_port = click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(0, 65_535), help="0: any that is free."
)
_first_key = click.option(
    "--first-key",
    is_flag=True,
    help="When nobody has a key yet, make one for an admin and show it, once, as the first line on stdout.",
)
_unsafe = click.option(
    "--unsafe-no-auth",
    "is_unsafe",
    is_flag=True,
    help="Serve everybody who reaches it as the owner. Never where others are.",
)


@click.command()
@_host
@_port
@_first_key
@_unsafe
@home_flag
def up(*, host: str, port: int, first_key: bool, is_unsafe: bool, home: str | None) -> int:
    """Serve a home over HTTP, with a worker and the watchdogs, in one process, until Ctrl-C.

    On loopback whoever reaches it is its owner. Elsewhere everybody needs a key, or a token of the issuer in the settings:
    without one it does not start. The last line on stdout is the address.
    """
    with opened_home(home, must_exist=False) as app:
        return _serve(
            app, EmbeddedRuntime(app), host=host, port=port, first_key=first_key, is_unsafe=is_unsafe
        )


@click.command()
@_host
@_port
@_first_key
@_unsafe
@home_flag
def api(*, host: str, port: int, first_key: bool, is_unsafe: bool, home: str | None) -> int:
    """Serve the HTTP API and nothing else, until Ctrl-C: 'custody watchdogs' and workers run beside it.

    The last line on stdout is the address.
    """
    with opened_home(home, must_exist=False) as app:
        return _serve(app, nullcontext(), host=host, port=port, first_key=first_key, is_unsafe=is_unsafe)


@click.command()
@home_flag
def watchdogs(*, home: str | None) -> int:
    """Send ready jobs to the workers and look after leases, deadlines and orders, until Ctrl-C.

    Several of them share the work without harm; 'custody up' and 'custody worker' have their own.
    """
    with opened_home(home, must_exist=False) as app, Presses() as presses:
        running = WatchdogRuntime(app)
        running.start()
        try:
            click.echo("custody watchdogs: on duty", err=True)
            _report_problems(running, presses)
        finally:
            running.stop()
    return Exit.ANSWERED


def _report_problems(running: WatchdogRuntime, presses: Presses) -> None:
    told = ""
    while not presses.count:
        if running.problem != told:
            told = running.problem
            click.echo(f"custody watchdogs: {told or 'on duty again'}", err=True)
        presses.wait(_LOOK_SECONDS)


@click.command()
@home_flag
def migrate(*, home: str | None) -> int:
    """Bring the database to the schema of this release: a home's, or the one that database_url names.

    Whatever opens a database does so too; this does it beforehand, and says that it is done.
    """
    with opened_home(home, must_exist=False) as app:
        place = without_password(app.settings.database_url or str(app.settings.database))
        click.echo(f"{place} is at schema {HEAD}")
    return Exit.ANSWERED


def _serve(
    app: App,
    work: AbstractContextManager[object],
    *,
    host: str,
    port: int,
    first_key: bool,
    is_unsafe: bool,
) -> int:
    if first_key:
        _make_first_key(app)
    with Presses() as presses, serving(app, host=host, port=port, is_unsafe=is_unsafe) as address, work:
        click.echo(address)
        click.echo(_greeting(address, app), err=True)
        while not presses.count:
            presses.wait(_LOOK_SECONDS)
        click.echo("custody: ending; jobs under way are handed back", err=True)
    return Exit.ANSWERED


def _make_first_key(app: App) -> None:
    with client_inside(app) as client:
        known = list(client.keys())
        if any(key.revoked_at is None for key in known):
            return
        made = client.make_key(
            KeyRequest(principal="admin", roles=frozenset({"admin"}), note="the first key")
        )
    click.echo(made.key)
    click.echo(
        "This is the key of an admin for every tenant. It is shown this once: keep it in a file that only you read.",
        err=True,
    )


def _greeting(address: str, app: App) -> str:
    return (
        f"custody: serving {app.settings.home} at {address}. Ask it from anywhere here with --server {address}, "
        f"or once and for all: custody login NAME --server {address}. Ctrl-C ends it."
    )
