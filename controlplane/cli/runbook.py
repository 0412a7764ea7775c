"""`custody runbook`: what is known of a job that does not go on, and the steps that help: retry it, or answer it by hand."""

import json

import click

from controlplane.api.bodies_admin import CaseBody
from controlplane.cli.exits import Exit, Refusal
from controlplane.cli.figures import age, counted
from controlplane.cli.flags import Where, job_argument, json_flag, where_flags
from controlplane.cli.fleet import reads_texts
from controlplane.cli.home import opened
from controlplane.cli.inside import looking_after
from controlplane.cli.remote_views import shown
from controlplane.cli.safe import one_line
from controlplane.cli.shapes import write_json
from rlm_worker.contracts import JsonObject

_STEPS = {
    "stop": "custody stop {job}",
    "kill": "custody kill {job}",
    "pause": "custody pause {job}",
    "resume": "custody resume {job}",
    "steer": 'custody steer {job} "…"',
    "retune": "custody retune {job} --budget … --reason …",
    "retry": "custody runbook {job} --retry --reason …",
    "complete": "custody runbook {job} --complete JSON --reason …",
    "fork": "custody fork {job}",
}


@click.command()
@job_argument
@click.option("--retry", is_flag=True, help="Try it anew: it failed, or was quarantined.")
@click.option("--complete", metavar="JSON", help="Answer it by hand; the answer must fit its schema.")
@click.option("--reason", default="", help="Why; goes on record with a step.")
@json_flag
@where_flags
def runbook(
    *, job_id: str, retry: bool, complete: str | None, reason: str, as_json: bool, where: Where
) -> int:
    """Say all that is known of a job that does not go on, and what can be done; or take a step.

    \b
    custody runbook JOB
    custody runbook JOB --retry --reason "the provider is back"

    JSON keys: job, checkpoint, step_id, step_status, task_status, iteration, last_event, pending, observed, findings, choices.
    """  # noqa: D301  # \b is click's mark for lines to keep
    if retry and complete is not None:
        raise Refusal("one step at a time: --retry, or --complete.")
    if (retry or complete is not None) and not reason.strip():
        raise Refusal("say why with --reason: a step of the runbook goes on record.")
    with opened(where) as app:
        whole = app.job(job_id).job_id
    with looking_after(where) as client:
        if retry:
            client.retry(whole, reason=reason)
        elif complete is not None:
            client.complete(whole, _output(complete), reason=reason)
        case = client.case(whole, content=reads_texts(client))
    if as_json:
        write_json(case.model_dump(mode="json"))
    else:
        click.echo("\n".join(_lines(case)))
    return Exit.ANSWERED


def _output(text: str) -> JsonObject:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Refusal('--complete wants the whole answer as a JSON object, as in \'{"answer": "…"}\'.')
    return found


def _lines(case: CaseBody) -> list[str]:
    job = case.job
    lines = [
        f"job {job.job_id} is {job.state}, {job.desired} wanted, attempt {job.attempts}, iteration {case.iteration}",
        f"step {case.step_id} is {case.step_status}, task {job.task_id} is {case.task_status}",
    ]
    if shown(job.waiting_for):
        lines.append(f"it waits for {one_line(shown(job.waiting_for), width=300)}")
    if case.last_event is not None:
        lines.append(
            f"last event: {case.last_event.seq} {case.last_event.kind}, {age(case.last_event.at)} ago"
        )
    if case.pending:
        waiting = ", ".join(f"{call.kind} {call.ordinal} to {call.model}" for call in case.pending[:5])
        lines.append(f"{counted(len(case.pending), 'call')} without an outcome: {waiting}")
    lines += [
        f"found: {one.kind}: {one_line(shown(one.detail), width=300)}; {one.action}" for one in case.findings
    ]
    lines.append("what can be done:")
    return [*lines, *(f"  {_STEPS.get(choice, choice).format(job=job.job_id)}" for choice in case.choices)]
