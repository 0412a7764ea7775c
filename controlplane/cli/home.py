"""Opening what keeps the jobs for one command: the App of a home, or a server."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from controlplane.cli.exits import Refusal
from controlplane.cli.flags import Where
from controlplane.cli.logs import logging_into
from controlplane.config import Settings, load_settings
from controlplane.custodian import Custodian

if TYPE_CHECKING:
    from controlplane.bootstrap import App
    from controlplane.client import Client


def settings_of(home: str | None) -> Settings:
    """The settings in force; a flag wins over the environment, which wins over the file."""
    return load_settings({} if home is None else {"home": home})


@contextmanager
def opened(where: Where, *, must_exist: bool = True) -> Iterator[Custodian]:
    """What keeps the jobs, closed at the end; a command that only reads does not make a home."""
    if where.server is None:
        with opened_home(where.home, must_exist=must_exist) as app:
            yield app
        return
    from controlplane.cli.remote import RemoteApp  # noqa: PLC0415  # a home needs no client

    with client_of(where.server) as client:
        yield RemoteApp(client)


def client_of(server: str) -> "Client":
    """A client of a server, by its address or the name of its profile."""
    from controlplane.client.profiles import profile_of  # noqa: PLC0415  # a home needs no client

    return profile_of(server).client()


@contextmanager
def opened_home(home: str | None, *, must_exist: bool = True) -> Iterator["App"]:
    """The App of a home of this machine."""
    settings = settings_of(home)
    if must_exist and not settings.home.is_dir():
        raise Refusal(
            f"there is no home at {str(settings.home)!r}, so there are no jobs. "
            "Start one with 'custody demo' or 'custody run', or name another with --home or a server with --server."
        )
    from controlplane.bootstrap import open_app  # noqa: PLC0415  # a server needs no store

    app = open_app(settings)
    try:
        with logging_into(settings.home):
            yield app
    finally:
        app.close()


def only_here(where: Where, words: str) -> str | None:
    """The home, for what needs this machine; with a server, `words` say what to do instead."""
    if where.server is not None:
        raise Refusal(words)
    return where.home
