"""`custody resume` and `custody worker`: the embedded worker, for one job or for any ready one."""

import click

from controlplane.bootstrap import App
from controlplane.cli.exits import Exit, exit_of_state
from controlplane.cli.flags import Where, home_flag, job_argument, json_flag, quiet_flag, where_flags
from controlplane.cli.home import opened, opened_home
from controlplane.cli.watch import Presses
from controlplane.cli.working import Manner, show_end, work_on
from controlplane.runtime import EmbeddedRuntime

_POLL_SECONDS = 0.2


@click.command()
@job_argument
@json_flag
@quiet_flag
@where_flags
def resume(job_id: str, *, as_json: bool, quiet: bool, where: Where) -> int:
    """Go on with a job after a crash or a pause; subcalls in the journal are not paid again.

    JSON keys: see `custody jobs`, and spec.
    """
    manner = Manner(as_json=as_json, quiet=quiet)
    with opened(where) as app:
        view = app.job(job_id)
        if view.is_terminal:
            click.echo(f"Job {view.job_id} has ended, there is nothing to resume. This is how:", err=True)
            show_end(view, manner=manner)
            return exit_of_state(view.state)
        app.resume(view.job_id)
        return work_on(app, view.job_id, manner=manner)


@click.command()
@click.option("--once", is_flag=True, help="End when no job is ready or working.")
@home_flag
def worker(*, once: bool, home: str | None) -> int:
    """Work on any ready job of this home, until Ctrl-C.

    Jobs under way when it ends keep their journal; the next worker goes on with them.
    """
    with opened_home(home, must_exist=False) as app, Presses() as presses, EmbeddedRuntime(app):
        click.echo("custody worker: ready", err=True)
        seen: dict[str, str] = {}
        while not presses.count:
            if _report(app, seen) == 0 and once:
                return Exit.ANSWERED
            presses.wait(_POLL_SECONDS)
    return Exit.ANSWERED


def _report(app: App, seen: dict[str, str]) -> int:
    """Say what changed, and count the jobs that are not over."""
    open_jobs = 0
    for view in app.jobs(limit=200):
        open_jobs += 0 if view.is_terminal or view.state in ("held", "parked") else 1
        if seen.get(view.job_id, view.state if view.is_terminal else "") != view.state:
            click.echo(f"job {view.job_id}: {view.state}", err=True)
        seen[view.job_id] = view.state
    return open_jobs
