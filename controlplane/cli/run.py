"""`custody run`: one question, from what was typed to the answer on the screen."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from controlplane.cli.artifacts import copy_artifacts, must_be_empty
from controlplane.cli.converting import conversion_progress
from controlplane.cli.exits import Refusal
from controlplane.cli.flags import Where, json_flag, quiet_flag, where_flags
from controlplane.cli.home import opened, settings_of
from controlplane.cli.inputs import Recording, Resolved, Typed, resolve, resolve_for_server
from controlplane.cli.ready import ready_model, require_sandbox
from controlplane.cli.shapes import job_document, write_json
from controlplane.cli.watch import pages
from controlplane.cli.working import Manner, work_on
from rlm_worker.contracts.job import ModelDriver, RecordingDriver


@click.command()
@click.argument("question")
@click.option(
    "--evidence",
    "-e",
    multiple=True,
    metavar="[NAME=]SOURCE",
    help="What to reason over; repeatable: a path or pattern, an archive, - for standard input, "
    "REPO@COMMIT, a URL, job:ID[/PATH]. plain:PATH takes a file as it is.",
)
@click.option("--snapshot", is_flag=True, help="Copy local evidence into the home before the job starts.")
@click.option("--output", "-o", metavar="FIELDS|FILE", help="'field: type, …' or a JSON Schema file.")
@click.option(
    "--playbook", "-p", metavar="NAME|FILE", help="Who writes the cells: a shipped playbook or a .py file."
)
@click.option(
    "--param", "params", multiple=True, metavar="K=V", help="A parameter of the playbook; repeatable."
)
@click.option(
    "--model", "-m", metavar="NAME", help="Who writes the cells: provider:model, or http://host/v1#model."
)
@click.option(
    "--sub-model", metavar="NAME", help="Who answers predict(). Default: as --model, else embedded."
)
@click.option(
    "--budget",
    "-b",
    multiple=True,
    metavar="DIM=N,…",
    help="iterations=20,subcalls=200,tokens=200k,usd=0.50,time=10m",
)
@click.option(
    "--label", "labels", multiple=True, metavar="K=V", help="A label to find the job by; repeatable."
)
@click.option(
    "--sandbox",
    metavar="NAME",
    help="What contains the cells: namespaces, docker, gvisor, landlock. 'custody doctor' tells which work here.",
)
@click.option("--language", metavar="NAME", help="What cells may say: open, or strict.")
@click.option(
    "--allow-net",
    multiple=True,
    metavar="HOST:PORT",
    help="What cells may reach with fetch(url), each request recorded; repeatable. Nothing by default.",
)
@click.option(
    "--collect",
    multiple=True,
    metavar="GLOB",
    help="Files to keep of those the cells leave in their workspace, as in 'out/**/*.csv'; repeatable.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Put copies of the kept files there."
)
@click.option(
    "--recording", metavar="JOB", help="Who writes the cells: that job did; what they ask is asked anew."
)
@click.option("--detach", is_flag=True, help="Enter the job and return; 'custody worker' works on it.")
@json_flag
@quiet_flag
@where_flags
def run(*, detach: bool, as_json: bool, quiet: bool, where: Where, out: Path | None, **typed: Any) -> int:
    """Ask a question of evidence and watch the answer being worked out.

    \b
    custody run "Which requests failed, and why?" -e logs/ --playbook log_triage
    custody run "Who signed, and when?" -e contracts/ -o "name: str, date: date, where: Citation" -m openai:gpt-5.5

    JSON keys: see `custody jobs`, and spec; the answer is result.structured_output.
    """  # noqa: D301  # \b is click's mark for lines to keep
    if out is not None and (detach or not typed["collect"]):
        raise Refusal("--out needs --collect, and a job that is worked on here: leave out --detach.")
    if out is not None:
        must_be_empty(out)
    manner = Manner(as_json=as_json, quiet=quiet)
    if typed["recording"] is not None:
        typed["recording"] = recording_of(typed["recording"], where=where)
    resolved = prepared(Typed(**typed), where=where, silent=as_json or quiet)
    return submit_and_work(resolved, where=where, manner=manner, detach=detach, out=out)


def recording_of(job_id: str, *, where: Where) -> Recording:
    """The cells that a job ran, and what it was asked with."""
    with opened(where) as app:
        view = app.job(job_id)
        cells = tuple(
            str(record.event["code"])
            for record in pages(app, view.job_id, after=0)
            if record.kind == "cell_proposed" and not record.event.get("node")
        )
    if not cells:
        raise Refusal(f"job {view.job_id} has run no cell: there is nothing to run again.")
    return Recording(
        driver=RecordingDriver(job_id=view.job_id, cells=cells),
        output_schema=view.spec.output_schema,
        sub_model=view.spec.sub_model,
        evidence=view.spec.input_artifacts,
        params=view.spec.params,
    )


def prepared(typed: Typed, *, where: Where, silent: bool) -> Resolved:
    """Everything checked, and the models at hand; no job yet."""
    if where.server is not None:
        return resolve_for_server(typed)
    resolved = resolve(typed, settings=settings_of(where.home))
    require_sandbox(resolved.request.sandbox_policy)
    request = resolved.request
    if isinstance(request.driver, ModelDriver):
        ready_model(request.driver.model, silent=silent)
    chosen = ready_model(request.sub_model, silent=silent)
    return replace(resolved, request=replace(request, sub_model=chosen))


def submit_and_work(
    resolved: Resolved, *, where: Where, manner: Manner, detach: bool = False, out: Path | None = None
) -> int:
    """Stage the evidence, enter the job, and work on it here unless detached."""
    with opened(where, must_exist=False) as app:
        with conversion_progress(silent=manner.as_json or manner.quiet) as on_converted:
            refs = app.stage(resolved.sources, snapshot=resolved.snapshot, on_converted=on_converted)
        view = app.submit(resolved.with_evidence(tuple(refs)))
        if not detach:
            code = work_on(app, view.job_id, manner=manner)
            if out is not None:
                copy_artifacts(app, app.job(view.job_id), out)
            return code
        if manner.as_json:
            write_json(job_document(view, whole=True))
        else:
            click.echo(view.job_id)
            click.echo(app.hint_of_workers, err=True)
        return 0
