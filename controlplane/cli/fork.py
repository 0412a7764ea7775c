"""`custody fork`: go another way from an iteration of a job, without doing again what came before."""

import click

from controlplane.cli.flags import Where, job_argument, json_flag, quiet_flag, where_flags
from controlplane.cli.home import opened
from controlplane.cli.inputs import merged_budget
from controlplane.cli.orders import operator
from controlplane.cli.parsing import parse_budget
from controlplane.cli.shapes import job_document, write_json
from controlplane.cli.working import Manner, work_on


@click.command()
@job_argument
@click.option(
    "--at",
    type=click.IntRange(1),
    metavar="K",
    help="Last iteration to share. Default: the last before SUBMIT.",
)
@click.option(
    "--steer", default="", metavar="TEXT", help="An instruction for the first iteration of its own."
)
@click.option(
    "--budget",
    "-b",
    multiple=True,
    metavar="DIM=N,…",
    help="Its own budget. Default: as the job it is forked from.",
)
@click.option("--detach", is_flag=True, help="Enter the job and return; 'custody worker' works on it.")
@json_flag
@quiet_flag
@where_flags
def fork(
    job_id: str,
    *,
    at: int | None,
    steer: str,
    budget: tuple[str, ...],
    detach: bool,
    where: Where,
    **manner: bool,
) -> int:
    """Make a new job that shares the first K iterations of another, and go on from there.

    The shared cells run again in a new sandbox with the answers on record: no model is asked and nothing is charged
    for them. JSON keys: see `custody jobs`, and spec; forked_from names the other job.
    """
    limits = merged_budget(parse_budget(list(budget)), playbook=None) if budget else None
    with opened(where) as app:
        view = app.fork(job_id, at=at, steer=steer, budget=limits, by=operator())
        if not detach:
            return work_on(app, view.job_id, manner=Manner(**manner))
    if manner["as_json"]:
        write_json(job_document(view, whole=True))
    else:
        click.echo(view.job_id)
        click.echo(app.hint_of_workers, err=True)
    return 0
