"""`custody workers`, `drain`, `findings`, `monitors` and `tasks`: who works on what, and what is wrong."""

import click
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from controlplane.api.bodies import TaskItem
from controlplane.api.bodies_admin import FindingBody, MonitorsBody, WorkerBody
from controlplane.cli.consoles import stdout_console
from controlplane.cli.figures import age, duration
from controlplane.cli.flags import Where, json_flag, where_flags
from controlplane.cli.inside import looking_after
from controlplane.cli.listing import Column, Form, Listing, list_flags
from controlplane.cli.remote_views import shown
from controlplane.cli.safe import one_line
from controlplane.cli.shapes import write_json
from controlplane.client import Client

#: A worker says that it is there more often than this.
_SILENT_SECONDS = 30.0
_STYLES = {"working": "green", "draining": "yellow", "silent": "red", "gone": "dim"}

_WORKERS: Listing[WorkerBody] = Listing(
    name="workers",
    columns=(
        Column(name="state", text=lambda one: Text(one.state, style=_STYLES.get(one.state, ""))),
        Column(name="slots", text=lambda one: str(one.slots), is_number=True),
        Column(name="seen", text=lambda one: f"{age(one.last_seen_at)} ago"),
        Column(name="since", text=lambda one: age(one.first_seen_at), is_wide=True),
        Column(name="host", text=lambda one: one.host, is_wide=True),
        Column(name="image", text=lambda one: one.image, is_wide=True),
        Column(name="worker", text=lambda one: one.worker_id, is_prose=True),
    ),
    id_of=lambda one: one.worker_id,
    document=lambda one: one.model_dump(mode="json"),
    empty="No worker was seen. Start one with: custody worker",
)

_FINDINGS: Listing[FindingBody] = Listing(
    name="findings",
    columns=(
        Column(name="finding", text=lambda one: one.finding_id),
        Column(
            name="kind", text=lambda one: Text(one.kind, style="yellow" if one.resolved_at is None else "dim")
        ),
        Column(name="job", text=lambda one: one.job_id, is_prose=True),
        Column(name="age", text=lambda one: age(one.at)),
        Column(name="done", text=lambda one: one.action),
        Column(
            name="what", text=lambda one: one_line(shown(one.detail), width=300), is_prose=True, is_wide=True
        ),
    ),
    id_of=lambda one: one.finding_id,
    document=lambda one: one.model_dump(mode="json"),
    empty="Nothing was found wrong.",
)


def _goal(one: TaskItem) -> str:
    return one_line(shown(one.goal), width=60)


_TASKS: Listing[TaskItem] = Listing(
    name="tasks",
    columns=(
        Column(name="task", text=lambda one: one.task_id),
        Column(name="status", text=lambda one: one.status),
        Column(name="goal", text=_goal, is_long=True),
        Column(name="age", text=lambda one: age(one.created_at)),
        Column(name="tenant", text=lambda one: one.tenant_id, is_wide=True),
    ),
    id_of=lambda one: one.task_id,
    document=lambda one: one.model_dump(mode="json"),
    empty="No tasks yet. Try: custody run",
)


@click.command()
@list_flags
@where_flags
def tasks(*, form: Form, limit: int, where: Where) -> None:
    """List tasks, newest first; 'custody jobs --task TASK' has the jobs of one.

    JSON keys: tasks [task_id, tenant_id, goal, status, version, created_at, updated_at], truncated.
    """
    with looking_after(where) as client:
        _TASKS.show(client.tasks(content=reads_texts(client)), form=form, limit=limit)


def reads_texts(client: Client) -> bool:
    return "content.read" in client.whoami().capabilities


@click.command()
@list_flags
@where_flags
def workers(*, form: Form, limit: int, where: Where) -> None:
    """List the workers that were seen: what each works on, and since when.

    JSON keys: workers [worker_id, host, slots, image, facts, is_draining, first_seen_at, last_seen_at, jobs], truncated.
    """
    with looking_after(where) as client:
        _WORKERS.show(client.workers(), form=form, limit=limit)


@click.command()
@click.argument("worker_id", metavar="WORKER")
@click.option("--undo", is_flag=True, help="Let it take up work again.")
@json_flag
@where_flags
def drain(*, worker_id: str, undo: bool, as_json: bool, where: Where) -> None:
    """Let a worker finish what it has and take up nothing more.

    JSON keys: as 'custody workers'.
    """
    with looking_after(where) as client:
        found = client.drain(worker_id, draining=not undo)
    if as_json:
        write_json(found.model_dump(mode="json"))
    else:
        now = "takes up work again" if undo else "takes up nothing more; what it works on goes on"
        click.echo(f"worker {found.worker_id} {now}")


@click.command()
@click.option("--resolved", is_flag=True, help="Those that are over, too.")
@list_flags
@where_flags
def findings(*, resolved: bool, form: Form, limit: int, where: Where) -> None:
    """List what the watchdogs found wrong, and what was done about it.

    JSON keys: findings [finding_id, tenant_id, job_id, kind, detail, evidence, action, at, resolved_at], truncated.
    """
    with looking_after(where) as client:
        found = client.findings(ended=resolved, content=reads_texts(client))
        _FINDINGS.show(found, form=form, limit=limit)


@click.command()
@json_flag
@where_flags
def monitors(*, as_json: bool, where: Where) -> None:
    """Say how jobs and workers stand: how many in each state, how long the oldest waits, how many fail.

    JSON keys: at, jobs {state: jobs, oldest_seconds}, ended_last_hour, failure_rate, oldest_running_seconds,
    oldest_waiting_seconds, jobs_retried, most_retries, queue_depth, workers.
    """
    with looking_after(where) as client:
        found = client.monitors()
    if as_json:
        write_json(found.model_dump(mode="json"))
    else:
        stdout_console().print(_standing(found))


def _standing(found: MonitorsBody) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    states = ", ".join(
        f"{figures.jobs:,} {state} (oldest {duration(round(figures.oldest_seconds * 1000))})"
        for state, figures in found.jobs.items()
    )
    ended = ", ".join(f"{number:,} {state}" for state, number in found.ended_last_hour.items())
    silent = [worker.worker_id for worker in found.workers if worker.silent_seconds > _SILENT_SECONDS]
    for name, text in (
        ("jobs", states or "none at work, none waiting"),
        ("last hour", f"{ended or 'none ended'}; {found.failure_rate:.0%} failed"),
        (
            "longest",
            f"running {_seconds(found.oldest_running_seconds)}, waiting {_seconds(found.oldest_waiting_seconds)}",
        ),
        ("retried", f"{found.jobs_retried:,} jobs, {found.most_retries} times at most"),
        ("queue", f"{found.queue_depth:,} wait to be sent"),
        ("workers", f"{len(found.workers)}" + (f"; silent: {', '.join(silent)}" if silent else "")),
    ):
        grid.add_row(Text(name, style="dim"), Text(text))
    return grid


def _seconds(seconds: float) -> str:
    return duration(round(seconds * 1000))
