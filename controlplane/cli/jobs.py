"""`custody jobs` and `custody show`: what there is, and everything about one of them."""

import click
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from controlplane.cli.answer import facts, render_end
from controlplane.cli.consoles import stdout_console
from controlplane.cli.figures import age, count, money, size
from controlplane.cli.flags import home_flag, job_argument, json_flag
from controlplane.cli.home import opened
from controlplane.cli.safe import one_line
from controlplane.cli.shapes import driver_name, job_document, moment, write_json
from controlplane.views import JobView

_STYLES = {
    "succeeded": "green",
    "partial": "yellow",
    "stopped": "yellow",
    "failed": "red",
    "quarantined": "red",
}


@click.command()
@click.option("--limit", "-n", default=20, show_default=True, type=click.IntRange(1, 1000), metavar="N")
@json_flag
@home_flag
def jobs(*, limit: int, as_json: bool, home: str | None) -> None:
    """List the jobs of this home, newest first.

    JSON keys: jobs [job …], truncated.
    """
    with opened(home) as app:
        found = app.jobs(limit=limit + 1)
    views, more = found[:limit], len(found) > limit
    if as_json:
        write_json({"jobs": [job_document(view) for view in views], "truncated": more})
        return
    console = stdout_console()
    if not views:
        console.print("No jobs yet. Try: custody demo", markup=False, highlight=False)
        return
    console.print(jobs_table(views))
    if more:
        console.print(f"… there are more: custody jobs -n {limit * 5}", markup=False, highlight=False)


def jobs_table(views: list[JobView]) -> Table:
    """Jobs as a table, one a row."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("job", "state", "question", "driver", "age"):
        table.add_column(name, no_wrap=name != "question", overflow="ellipsis")
    for name in ("subcalls", "tokens", "cost"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("answer", no_wrap=True)
    for view in views:
        usage = view.usage if view.result is None else view.result.usage
        table.add_row(
            view.job_id,
            Text(view.state, style=_STYLES.get(view.state, "cyan")),
            Text(one_line(view.spec.task, width=60)),
            Text(one_line(driver_name(view.spec), width=30)),
            age(view.created_at),
            count(usage.subcalls),
            count(usage.tokens),
            money(usage.cost_usd),
            "" if view.result is None else view.result.answered_by,
        )
    return table


@click.command()
@job_argument
@json_flag
@home_flag
def show(job_id: str, *, as_json: bool, home: str | None) -> None:
    """Show one job: answer, citations, spend by model, stop times, receipt.

    JSON keys: see `custody jobs`, and spec.
    """
    with opened(home) as app:
        view = app.job(job_id)
    if as_json:
        write_json(job_document(view, whole=True))
        return
    console = stdout_console()
    console.print(about(view))
    if view.is_terminal:
        console.print(render_end(view))
    else:
        console.print(Group(*(Text(line, style="dim") for line in facts(view))))
        console.print(
            f"It has not ended: custody trace {view.job_id} --follow", markup=False, highlight=False
        )


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
                f"{ref.name}: {ref.files} files, {size(ref.size_bytes)}" for ref in spec.input_artifacts
            ),
        ),
        ("labels", ", ".join(f"{key}={value}" for key, value in spec.labels.items())),
        ("held by", "" if view.lease is None else f"{view.lease.worker_id}, fence {view.lease.fence}"),
        ("by model", _by_model(view)),
    ):
        if value:
            grid.add_row(name, Text(value))
    return grid


def _by_model(view: JobView) -> str:
    usage = view.usage if view.result is None else view.result.usage
    return "\n".join(
        f"{one_line(name, width=60)}: {part.calls} calls, {count(part.input_tokens)} tokens in, "
        f"{count(part.output_tokens)} out, {money(part.cost_usd)}"
        for name, part in usage.by_model.items()
    )
