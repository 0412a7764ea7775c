"""Options and arguments that several commands share, so that they read and behave alike everywhere."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click
from click.core import ParameterSource

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Where:
    """Whose jobs a command is about: those of a home of this machine, or of a server."""

    home: str | None = None
    server: str | None = None


def where_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """--home or --server, handed on as one `where`."""

    @wraps(command)
    def called(*args: Any, home: str | None, server: str | None, **kwargs: Any) -> Any:
        # A home that is typed is meant, whatever server the environment names.
        return command(*args, where=Where(home=home, server=None if home else server), **kwargs)

    chosen = click.option(
        "--server",
        metavar="URL|NAME",
        default=None,
        envvar="CUSTODY_SERVER",
        help="Ask a server instead: an address, or a profile of 'custody login'. Default: CUSTODY_SERVER.",
    )
    return home_flag(chosen(called))


def typed_server() -> str:
    """` --server NAME` as it was typed, for commands that are suggested; empty when it was not."""
    context = click.get_current_context(silent=True)
    if context is None or context.get_parameter_source("server") is not ParameterSource.COMMANDLINE:
        return ""
    return f" --server {context.params['server']}"


def home_flag(command: Command) -> Command:
    return click.option(
        "--home",
        metavar="DIR",
        default=None,
        help="Where state is kept. Default: CUSTODY_HOME, else .custody here.",
    )(command)


def json_flag(command: Command) -> Command:
    return click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout, nothing else.")(
        command
    )


def quiet_flag(command: Command) -> Command:
    return click.option("--quiet", "-q", is_flag=True, help="Print the answer, not the work.")(command)


def job_argument(command: Command) -> Command:
    return click.argument("job_id", metavar="JOB")(command)
