"""`custody jobs` and `custody show`: what there is, and everything about one of them."""

from dataclasses import replace

import click
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from controlplane.cli.answer import facts, render_end
from controlplane.cli.consoles import stdout_console
from controlplane.cli.figures import age, count, money, size
from controlplane.cli.filters import filter_flags
from controlplane.cli.flags import Where, job_argument, json_flag, where_flags
from controlplane.cli.home import opened
from controlplane.cli.listing import Column, Form, Listing, list_flags
from controlplane.cli.safe import one_line
from controlplane.cli.shapes import job_document, moment, write_json
from controlplane.custodian import ANY_JOB, JobLine, JobQuery, driver_name
from controlplane.views import JobView
from rlm_worker.contracts.result import ArtifactRef

_STYLES = {
    "succeeded": "green",
    "partial": "yellow",
    "stopped": "yellow",
    "failed": "red",
    "quarantined": "red",
}


_ROOM = 60

JOBS: Listing[JobLine] = Listing(
    name="jobs",
    columns=(
        Column(name="job", text=lambda line: line.job_id),
        Column(name="state", text=lambda line: Text(line.state, style=_STYLES.get(line.state, "cyan"))),
        Column(name="question", text=lambda line: one_line(line.question, width=_ROOM), is_long=True),
        Column(name="age", text=lambda line: age(line.created_at)),
        Column(name="driver", text=lambda line: one_line(line.driver, width=30), is_wide=True, is_long=True),
        Column(name="subcalls", text=lambda line: count(line.subcalls), is_wide=True, is_number=True),
        Column(name="tokens", text=lambda line: count(line.tokens), is_wide=True, is_number=True),
        Column(name="cost", text=lambda line: money(line.cost_usd), is_wide=True, is_number=True),
        Column(name="answer", text=lambda line: line.answered_by, is_wide=True),
    ),
    id_of=lambda line: line.job_id,
    document=lambda line: {"job_id": line.job_id},
    empty="No jobs yet. Try: custody demo",
)


@click.command()
@filter_flags
@list_flags
@where_flags
def jobs(*, query: JobQuery, form: Form, limit: int, where: Where) -> None:
    """List jobs, newest first.

    \b
    custody jobs --state running -o ids | custody stop -
    custody jobs --since 2h --label team=search --search "pump failed"

    JSON keys: jobs [job …], truncated.
    """  # noqa: D301  # \b is click's mark for lines to keep
    with opened(where) as app:
        shown = replace(JOBS, document=lambda line: job_document(app.job(line.job_id)))
        if query != ANY_JOB:
            shown = replace(shown, empty="No job fits.")
        shown.show(app.lines(query), form=form, limit=limit)


@click.command()
@job_argument
@json_flag
@where_flags
def show(job_id: str, *, as_json: bool, where: Where) -> None:
    """Show one job: answer, citations, spend by model, stop times, receipt.

    JSON keys: see `custody jobs`, and spec.
    """
    with opened(where) as app:
        view = app.job(job_id)
        is_abandoned = app.is_abandoned(view)
        waits = app.hint_of_workers
    if as_json:
        write_json(job_document(view, whole=True))
        return
    console = stdout_console()
    console.print(about(view))
    if view.is_terminal:
        console.print(render_end(view))
    else:
        console.print(Group(*(Text(line, style="dim") for line in facts(view))))
        hint = f"It has not ended: custody trace {view.job_id} --follow"
        if is_abandoned:
            hint = f"Its worker is gone; go on with it: custody resume {view.job_id}"
        elif view.state == "queued":
            hint = waits
        elif view.state == "parked":
            when = "" if view.not_before is None else f" until {moment(view.not_before)}"
            hint = f"It is parked{when} and holds nothing; go on now: custody resume {view.job_id}"
        console.print(hint, markup=False, highlight=False)


def about(view: JobView) -> RenderableType:
    """What was asked, of whom, and where it stands."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    spec = view.spec
    for name, value in (
        ("question", one_line(spec.task, width=1_000)),
        ("job", f"{view.job_id} of task {view.task_id}"),
        ("state", f"{view.state}, {view.desired} wanted, attempt {view.attempts}"),
        ("waiting", one_line(view.waiting_for, width=1_000)),
        ("driver", driver_name(spec)),
        ("predict()", spec.sub_model),
        ("created", f"{moment(view.created_at)}, {age(view.created_at)} ago"),
        (
            "evidence",
            "\n".join(
                f"{ref.name}: {ref.files} files, {size(ref.size_bytes)}"
                + (f", {one_line(ref.origin, width=200)}" if ref.origin else "")
                for ref in spec.input_artifacts
            ),
        ),
        ("network", ", ".join(spec.network_policy.allow)),
        ("files kept", "" if view.result is None else _kept(view.result.artifact_refs)),
        ("forked from", "" if spec.fork is None else f"{spec.fork.job_id} at iteration {spec.fork.at}"),
        ("forks", ", ".join(view.forks)),
        ("labels", ", ".join(f"{key}={value}" for key, value in spec.labels.items())),
        ("held by", "" if view.lease is None else f"{view.lease.worker_id}, fence {view.lease.fence}"),
        ("by model", _by_model(view)),
    ):
        if value:
            grid.add_row(name, Text(value))
    return grid


def _kept(refs: tuple[ArtifactRef, ...]) -> str:
    if not refs:
        return ""
    return f"{len(refs)} files, {size(sum(ref.size_bytes for ref in refs))}: custody artifacts JOB --out DIR"


def _by_model(view: JobView) -> str:
    usage = view.usage if view.result is None else view.result.usage
    return "\n".join(
        f"{one_line(name, width=60)}: {part.calls} calls, {count(part.input_tokens)} tokens in, "
        f"{count(part.output_tokens)} out, {money(part.cost_usd)}"
        for name, part in usage.by_model.items()
    )
