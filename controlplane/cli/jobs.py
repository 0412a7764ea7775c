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
from rlm_worker.contracts.result import ArtifactRef

_STYLES = {
    "succeeded": "green",
    "partial": "yellow",
    "stopped": "yellow",
    "failed": "red",
    "quarantined": "red",
}


_FIGURES = ("driver", "subcalls", "tokens", "cost", "answer")
_WIDTHS = {"job": 24, "state": 11}
#: Columns from which on the figures have room.
_WIDE = 140


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
    console.print(jobs_table(views, width=console.width))
    if more:
        console.print(f"… there are more: custody jobs -n {limit * 5}", markup=False, highlight=False)


def jobs_table(views: list[JobView], *, width: int) -> Table:
    """Jobs as a table, one a row. On a narrow screen figures give way first; id and state never do."""
    is_wide = width >= _WIDE
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("job", "state", "question", "age"):
        table.add_column(name, no_wrap=True, overflow="ellipsis", min_width=_WIDTHS.get(name))
    for name in _FIGURES if is_wide else ():
        table.add_column(name, justify="right" if name not in ("driver", "answer") else "left", no_wrap=True)
    room = max(12, width - 62) if not is_wide else 50
    for view in views:
        table.add_row(
            view.job_id,
            Text(view.state, style=_STYLES.get(view.state, "cyan")),
            Text(one_line(view.spec.task, width=room)),
            age(view.created_at),
            *(_figures(view) if is_wide else ()),
        )
    return table


def _figures(view: JobView) -> tuple[Text | str, ...]:
    usage = view.usage if view.result is None else view.result.usage
    return (
        Text(one_line(driver_name(view.spec), width=30)),
        count(usage.subcalls),
        count(usage.tokens),
        money(usage.cost_usd),
        "" if view.result is None else view.result.answered_by,
    )


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
        is_abandoned = app.is_abandoned(view)
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
            hint = "It waits for a worker of this home: custody worker"
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
