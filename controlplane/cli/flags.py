"""Options and arguments that several commands share, so that they read and behave alike everywhere."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


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
