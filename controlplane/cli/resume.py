"""`custody resume`: go on with jobs, here with a worker of this process, at a server with one of its own."""

from typing import Any

import click

from controlplane.cli.exits import Exit, exit_of_state
from controlplane.cli.filters import filter_flags
from controlplane.cli.flags import Where, json_flag, quiet_flag, where_flags
from controlplane.cli.home import opened
from controlplane.cli.many import Mass, order
from controlplane.cli.orders import mass_flags
from controlplane.cli.working import Manner, show_end, work_on


@click.command()
@mass_flags
@filter_flags
@click.option("--detach", is_flag=True, help="Make it ready and return; a worker goes on with it.")
@json_flag
@quiet_flag
@where_flags
def resume(*, detach: bool, as_json: bool, quiet: bool, where: Where, **given: Any) -> int:
    """Go on with a job after a crash or a pause; subcalls in the journal are not paid again.

    Several jobs, or '-' for ids on standard input, are made ready and left to workers.
    JSON keys: see `custody jobs`, and spec.
    """
    mass = Mass(verb="resume", form="json" if as_json else "table", **given)
    if not mass.is_one:
        return order(mass, where)
    manner = Manner(as_json=as_json, quiet=quiet)
    with opened(where) as app:
        view = app.job(mass.names[0])
        if view.is_terminal:
            click.echo(f"Job {view.job_id} has ended, there is nothing to resume. This is how:", err=True)
            show_end(view, manner=manner)
            return exit_of_state(view.state)
        app.resume(view.job_id)
        if not detach:
            return work_on(app, view.job_id, manner=manner)
        click.echo(f"job {view.job_id} is ready. {app.hint_of_workers}", err=True)
    return Exit.ANSWERED
