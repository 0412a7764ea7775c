"""`custody retune`: other limits for a job that has not ended."""

import json
from decimal import Decimal

import click

from controlplane.api.bodies_orders import RetuneRequest
from controlplane.cli.exits import Exit, Refusal
from controlplane.cli.flags import Where, job_argument, json_flag, where_flags
from controlplane.cli.home import opened
from controlplane.cli.inside import looking_after
from controlplane.cli.parsing import parse_budget
from controlplane.cli.shapes import job_document, write_json


@click.command()
@job_argument
@click.option(
    "--budget",
    "-b",
    multiple=True,
    required=True,
    metavar="DIM=N,…",
    help="New limits, as in 'custody run'; the others stay.",
)
@click.option("--reason", required=True, help="Why; kept with the change.")
@click.option("--dry-run", is_flag=True, help="Say what would be set, and do nothing.")
@json_flag
@where_flags
def retune(
    *, job_id: str, budget: tuple[str, ...], reason: str, as_json: bool, where: Where, dry_run: bool
) -> int:
    """Change limits of a job that has not ended; never below what it has used.

    JSON keys: see `custody jobs`.
    """
    request = _request(budget, reason=reason)
    with opened(where) as app:
        view = app.job(job_id)
    limits = {
        name: value
        for name, value in view.spec.budget.model_dump(mode="json").items()
        if name in request.budget
    }
    if dry_run:
        click.echo(f"job {view.job_id}: {json.dumps(limits)} would become {json.dumps(request.budget)}")
        return Exit.ANSWERED
    with looking_after(where) as client:
        client.retune(view.job_id, request)
    with opened(where) as app:
        view = app.job(view.job_id)
    if as_json:
        write_json(job_document(view))
    else:
        click.echo(f"job {view.job_id} is retuned; its worker has it within a second")
    return Exit.ANSWERED


def _request(budget: tuple[str, ...], *, reason: str) -> RetuneRequest:
    limits = parse_budget(budget)
    if not limits:
        raise Refusal("say what to change, as in --budget subcalls=400,usd=2.")
    given = {name: str(value) if isinstance(value, Decimal) else value for name, value in limits.items()}
    return RetuneRequest(budget=given, reason=reason)
