"""`custody stop`, `kill`, `pause` and `steer`: orders to jobs, whoever works on them."""

import getpass
import os
import time
from collections.abc import Callable
from typing import Any

import click

from controlplane.cli.answer import stop_line
from controlplane.cli.exits import Exit, Refusal
from controlplane.cli.filters import filter_flags
from controlplane.cli.flags import Where, json_flag, where_flags
from controlplane.cli.home import opened
from controlplane.cli.many import Mass, is_at_rest, order
from controlplane.cli.shapes import job_document, write_json
from controlplane.cli.watch import has_ended
from controlplane.custodian import Custodian
from controlplane.domain.commands import Order
from controlplane.views import JobView

_POLL_SECONDS = 0.02
_PATIENCE_SECONDS = 2.0


def operator() -> str:
    """Who gives the order, as the system knows them."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def mass_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """JOB…, --dry-run and --yes: whom an order is for."""
    for option in (
        click.option("--yes", "-y", is_flag=True, help="Do not ask, however many they are."),
        click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing."),
        click.argument("names", metavar="JOB…|-", nargs=-1),
    ):
        command = option(command)
    return command


_timeout_flag = click.option(
    "--timeout", "seconds", default=60.0, show_default=True, help="Seconds to wait for the proof."
)
_reason_flag = click.option("--reason", default="", help="Why; kept with the order.")


@click.command()
@mass_flags
@filter_flags
@click.option(
    "--kill", is_flag=True, help="Order a kill; both end the work at once, and the record says which."
)
@_reason_flag
@_timeout_flag
@json_flag
@where_flags
def stop(*, kill: bool, as_json: bool, where: Where, **given: Any) -> int:
    r"""Stop jobs and wait until nothing of them is left.

    \b
    custody stop JOB
    custody jobs --label batch=7 -o ids | custody stop -
    custody stop --state running --since 1h --dry-run

    Exits 0 when every stop is verified (or the jobs had ended by themselves), 4 when it is not: within the timeout, or
    because a worker did not answer and may still be there.
    JSON keys: see `custody jobs`; stop holds observed_ms, verified_ms, survivors. Of several: outcomes [job_id, outcome, state].
    """
    return give("kill" if kill else "stop", where, as_json=as_json, **given)


@click.command()
@mass_flags
@filter_flags
@_reason_flag
@_timeout_flag
@json_flag
@where_flags
def pause(*, as_json: bool, where: Where, **given: Any) -> int:
    """Pause jobs: each lets go of its worker and its budget, and goes on with 'custody resume'.

    JSON keys: as 'custody stop'.
    """
    return give("pause", where, as_json=as_json, **given)


def give(verb: Order, where: Where, *, as_json: bool, seconds: float, **given: Any) -> int:
    """An order to end or to pause, to one job or to many."""
    mass = Mass(verb=verb, seconds=seconds, form="json" if as_json else "table", **given)
    return _one(mass, verb, where, as_json=as_json) if mass.is_one else order(mass, where)


def _one(mass: Mass, verb: Order, where: Where, *, as_json: bool) -> int:
    with opened(where) as app:
        before = app.job(mass.names[0])
        if not before.is_terminal:
            app.stop(before.job_id, order=verb, by=operator(), reason=mass.reason)
        view = _wait(app, before.job_id, seconds=mass.seconds)
    if as_json:
        write_json(job_document(view))
    else:
        click.echo(_words(before, view))
    if verb == "pause":
        return Exit.ANSWERED if view.state == "held" else Exit.FAILED
    return Exit.ANSWERED if view.is_terminal and _is_proved(view) else Exit.FAILED


def _is_proved(view: JobView) -> bool:
    return view.stop is None or view.stop.is_proved


def _wait(app: Custodian, job_id: str, *, seconds: float) -> JobView:
    view = _poll(app, job_id, seconds=min(seconds, _PATIENCE_SECONDS))
    if is_at_rest(view):
        return view
    # Its worker may be gone: a runtime that works on nothing still looks after leases.
    with app.at_work(frozenset()):
        return _poll(app, job_id, seconds=max(seconds - _PATIENCE_SECONDS, 0))


def _poll(app: Custodian, job_id: str, *, seconds: float) -> JobView:
    deadline = time.monotonic() + seconds
    while True:
        view = app.job(job_id)
        if is_at_rest(view) or time.monotonic() >= deadline:
            return view
        time.sleep(_POLL_SECONDS)


def _words(before: JobView, view: JobView) -> str:
    if before.is_terminal and _is_proved(view):
        return f"job {view.job_id} had already ended: {view.state}. Nothing to stop."
    timeline = "" if view.stop is None else f": {stop_line(view.stop)}"
    if view.state == "held":
        return f"job {view.job_id} is paused{timeline}. Go on with: custody resume {view.job_id}"
    if not has_ended(view):
        return f"job {view.job_id} is {view.state}{timeline}. Look again with: custody show {view.job_id}"
    if not _is_proved(view):
        return (
            f"job {view.job_id} is {view.state}{timeline}. It can write nothing more, but whether it has ended "
            "is not known: look for that process and end it."
        )
    return f"job {view.job_id} is {view.state}{timeline}"


@click.command()
@click.argument("job_id", metavar="JOB|-")
@click.argument("text")
@click.option("--dry-run", is_flag=True, help="Say whom it would reach, and do nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask, however many they are.")
@json_flag
@where_flags
def steer(job_id: str, text: str, *, dry_run: bool, yes: bool, as_json: bool, where: Where) -> int:
    """Give a working job an instruction for its next iteration; '-' reads ids of jobs from standard input.

    It changes emphasis and order, never schema, tools, network or budget. JSON keys: job_id, accepted.
    """
    if not text.strip():
        raise Refusal("the instruction is empty: say what it shall look at, in quotes.")
    form = "json" if as_json else "table"
    mass = Mass(verb="steer", names=(job_id,), text=text, dry_run=dry_run, yes=yes, form=form)  # type: ignore[arg-type]
    if not mass.is_one:
        return order(mass, where)
    with opened(where) as app:
        view = app.job(job_id)
        app.steer(view.job_id, text, by=operator())
    if as_json:
        write_json({"job_id": view.job_id, "accepted": True})
    else:
        click.echo(f"steer of job {view.job_id} accepted; the trace shows when it is observed")
    return Exit.ANSWERED
