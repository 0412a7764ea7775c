"""Opening the App of a home for one command."""

from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.bootstrap import App, open_app
from controlplane.cli.exits import Refusal
from controlplane.cli.logs import logging_into
from controlplane.config import Settings, load_settings


def settings_of(home: str | None) -> Settings:
    """The settings in force; a flag wins over the environment, which wins over the file."""
    return load_settings({} if home is None else {"home": home})


@contextmanager
def opened(home: str | None, *, must_exist: bool = True) -> Iterator[App]:
    """The App of a home, closed at the end; a command that only reads does not make a home."""
    settings = settings_of(home)
    if must_exist and not settings.home.is_dir():
        raise Refusal(
            f"there is no home at {str(settings.home)!r}, so there are no jobs. "
            "Start one with 'custody demo' or 'custody run', or name another with --home."
        )
    app = open_app(settings)
    try:
        with logging_into(settings.home):
            yield app
    finally:
        app.close()
