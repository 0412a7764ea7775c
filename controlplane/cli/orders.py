"""`custody stop` and `custody steer`: orders to a job, whoever works on it."""

import getpass
import os
import time

import click

from controlplane.cli.answer import stop_line
from controlplane.cli.exits import Exit
from controlplane.cli.flags import Where, job_argument, json_flag, where_flags
from controlplane.cli.home import opened
from controlplane.cli.shapes import job_document, write_json
from controlplane.cli.watch import has_ended
from controlplane.custodian import Custodian
from controlplane.views import JobView

_POLL_SECONDS = 0.02
_PATIENCE_SECONDS = 2.0


def operator() -> str:
    """Who gives the order, as the system knows them."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


@click.command()
@job_argument
@click.option(
    "--kill", is_flag=True, help="Order a kill; both end the work at once, and the record says which."
)
@click.option("--reason", default="", help="Why; kept with the order.")
@click.option("--timeout", "seconds", default=60.0, show_default=True, help="Seconds to wait for the proof.")
@json_flag
@where_flags
def stop(job_id: str, *, kill: bool, reason: str, seconds: float, as_json: bool, where: Where) -> int:
    """Stop a job and wait until nothing of it is left.

    Exits 0 when the stop is verified (or the job had ended by itself), 4 when it is not: within the timeout, or
    because its worker did not answer and may still be there.
    JSON keys: see `custody jobs`; stop holds observed_ms, verified_ms, survivors.
    """
    with opened(where) as app:
        before = app.job(job_id)
        if not before.is_terminal:
            app.stop(before.job_id, order="kill" if kill else "stop", by=operator(), reason=reason)
        view = _wait(app, before.job_id, seconds=seconds)
    if as_json:
        write_json(job_document(view))
    else:
        click.echo(_words(before, view))
    return Exit.ANSWERED if view.is_terminal and _is_proved(view) else Exit.FAILED


def _is_proved(view: JobView) -> bool:
    return view.stop is None or view.stop.is_proved


def _wait(app: Custodian, job_id: str, *, seconds: float) -> JobView:
    view = _poll(app, job_id, seconds=min(seconds, _PATIENCE_SECONDS))
    if has_ended(view):
        return view
    # Its worker may be gone: a runtime that works on nothing still looks after leases.
    with app.at_work(frozenset()):
        return _poll(app, job_id, seconds=max(seconds - _PATIENCE_SECONDS, 0))


def _poll(app: Custodian, job_id: str, *, seconds: float) -> JobView:
    deadline = time.monotonic() + seconds
    while True:
        view = app.job(job_id)
        if has_ended(view) or time.monotonic() >= deadline:
            return view
        time.sleep(_POLL_SECONDS)


def _words(before: JobView, view: JobView) -> str:
    if before.is_terminal and _is_proved(view):
        return f"job {view.job_id} had already ended: {view.state}. Nothing to stop."
    timeline = "" if view.stop is None else f": {stop_line(view.stop)}"
    if not has_ended(view):
        return f"job {view.job_id} is {view.state}{timeline}. Look again with: custody show {view.job_id}"
    if not _is_proved(view):
        return (
            f"job {view.job_id} is {view.state}{timeline}. It can write nothing more, but whether it has ended "
            "is not known: look for that process and end it."
        )
    return f"job {view.job_id} is {view.state}{timeline}"


@click.command()
@job_argument
@click.argument("text")
@json_flag
@where_flags
def steer(job_id: str, text: str, *, as_json: bool, where: Where) -> None:
    """Give a working job an instruction for its next iteration.

    It changes emphasis and order, never schema, tools, network or budget. JSON keys: job_id, accepted.
    """
    with opened(where) as app:
        view = app.job(job_id)
        app.steer(view.job_id, text, by=operator())
    if as_json:
        write_json({"job_id": view.job_id, "accepted": True})
    else:
        click.echo(f"steer of job {view.job_id} accepted; the trace shows when it is observed")
