"""Which jobs a command is about, as options that several commands share."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, cast, get_args

import click

from controlplane.cli.exits import Refusal
from controlplane.cli.parsing import parse_labels
from controlplane.custodian import JobQuery
from controlplane.views import JobStateName

_AGO = re.compile(r"([0-9]+)\s*(s|m|min|h|d|w)")
_UNITS = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def filter_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """--state, --label, --since, --model, --task and --search, handed on as one `query`."""

    @wraps(command)
    def called(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in ("state", "labels", "since", "model", "task_id", "words")}
        return command(*args, query=query_of(**given), **kwargs)

    for option in (
        click.option(
            "--search", "words", default="", metavar="WORDS", help="All of them, in question or labels."
        ),
        click.option("--task", "task_id", default="", metavar="TASK", help="Of this task."),
        click.option("--model", default="", metavar="NAME", help="That this model writes or answers for."),
        click.option("--since", metavar="AGE|TIME", help="Made since: 30min, 2h, 3d, or 2026-01-31T12:00."),
        click.option("--label", "labels", multiple=True, metavar="K=V", help="With this label; repeatable."),
        click.option(
            "--state", type=click.Choice(get_args(JobStateName)), metavar="STATE", help="In this state."
        ),
    ):
        called = option(called)
    return called


def query_of(
    *,
    state: str | None,
    labels: tuple[str, ...],
    since: str | None,
    model: str,
    task_id: str,
    words: str,
) -> JobQuery:
    return JobQuery(
        state=cast("JobStateName | None", state),
        labels=tuple(parse_labels(labels).items()),
        since=None if since is None else moment_of(since),
        model=model,
        task_id=task_id,
        words=words,
    )


def moment_of(text: str, *, ahead: bool = False) -> datetime:
    """A moment as a person types it: how long ago (or ahead), or when. Without a zone it is UTC."""
    match = _AGO.fullmatch(text.strip().lower())
    if match is not None:
        distance = timedelta(**{_UNITS[match[2]]: int(match[1])})
        return datetime.now(UTC) + distance if ahead else datetime.now(UTC) - distance
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Refusal(
            f"{text!r} is no time: write an age like 30min, 2h or 3d, or a date like 2026-01-31."
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
