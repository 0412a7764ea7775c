"""`custody workers`, `drain`, `findings`, `monitors`, `runbook` and `tasks`: who works, what is wrong, and what to do about it."""

import click
from rich.text import Text

from controlplane.api.bodies import TaskItem, Withheld
from controlplane.api.bodies_admin import FindingBody, MonitorBody, WorkerBody
from controlplane.cli.exits import Exit
from controlplane.cli.figures import age
from controlplane.cli.flags import Where, job_argument, json_flag, where_flags
from controlplane.cli.home import opened
from controlplane.cli.inside import looking_after
from controlplane.cli.listing import Column, Form, Listing, list_flags
from controlplane.cli.safe import one_line
from controlplane.cli.shapes import write_json
from controlplane.client import Client

_STYLES = {"ok": "green", "warning": "yellow", "failing": "red"}

_WORKERS: Listing[WorkerBody] = Listing(
    name="workers",
    columns=(
        Column(name="worker", text=lambda one: one.worker_id),
        Column(
            name="state",
            text=lambda one: "draining" if one.is_draining else "working" if one.jobs else "idle",
        ),
        Column(name="jobs", text=lambda one: f"{one.jobs} of {one.slots}", is_number=True),
        Column(name="seen", text=lambda one: f"{age(one.last_seen_at)} ago"),
        Column(name="since", text=lambda one: age(one.first_seen_at), is_wide=True),
        Column(name="host", text=lambda one: one.host, is_wide=True),
        Column(name="image", text=lambda one: one.image, is_wide=True),
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
        Column(name="job", text=lambda one: one.job_id),
        Column(name="age", text=lambda one: age(one.at)),
        Column(name="done", text=lambda one: one.action),
        Column(name="what", text=lambda one: one_line(one.detail, width=300), is_prose=True, is_wide=True),
    ),
    id_of=lambda one: one.finding_id,
    document=lambda one: one.model_dump(mode="json"),
    empty="Nothing was found wrong.",
)

_MONITORS: Listing[MonitorBody] = Listing(
    name="monitors",
    columns=(
        Column(name="monitor", text=lambda one: one.name),
        Column(name="status", text=lambda one: Text(one.status, style=_STYLES[one.status])),
        Column(name="how it stands", text=lambda one: one.detail or _figures(one), is_prose=True),
    ),
    id_of=lambda one: one.name,
    document=lambda one: one.model_dump(mode="json"),
    empty="Nothing is watched.",
)


def _goal(one: TaskItem) -> str:
    withheld = isinstance(one.goal, Withheld)
    return "(withheld)" if withheld else one_line(str(one.goal), width=60)


_TASKS: Listing[TaskItem] = Listing(
    name="tasks",
    columns=(
        Column(name="task", text=lambda one: one.task_id),
        Column(name="status", text=lambda one: one.status),
        Column(name="goal", text=_goal),
        Column(name="age", text=lambda one: age(one.created_at)),
        Column(name="tenant", text=lambda one: one.tenant_id, is_wide=True),
    ),
    id_of=lambda one: one.task_id,
    document=lambda one: one.model_dump(mode="json"),
    empty="No tasks yet. Try: custody run",
)


def _figures(one: MonitorBody) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in one.figures.items())


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
@click.option("--reason", default="", help="Why; kept in the audit.")
@json_flag
@where_flags
def drain(*, worker_id: str, undo: bool, reason: str, as_json: bool, where: Where) -> None:
    """Let a worker finish what it has and take up nothing more.

    JSON keys: as 'custody workers'.
    """
    with looking_after(where) as client:
        found = client.drain(worker_id, draining=not undo, reason=reason)
    if as_json:
        write_json(found.model_dump(mode="json"))
    else:
        now = "takes up work again" if undo else f"takes up nothing more; it has {found.jobs} jobs left"
        click.echo(f"worker {found.worker_id} {now}")


@click.command()
@click.option("--job", "job_id", default="", metavar="JOB", help="Of this job.")
@click.option("--resolved", is_flag=True, help="Those that are over, too.")
@list_flags
@where_flags
def findings(*, job_id: str, resolved: bool, form: Form, limit: int, where: Where) -> None:
    """List what the watchdogs found wrong, and what was done about it.

    JSON keys: findings [finding_id, tenant_id, job_id, kind, detail, evidence, action, at, resolved_at], truncated.
    """
    with looking_after(where) as client:
        _FINDINGS.show(client.findings(job_id=job_id, resolved=resolved), form=form, limit=limit)


@click.command()
@list_flags
@where_flags
def monitors(*, form: Form, limit: int, where: Where) -> int:
    """Say how everything that is watched stands; exits 4 when something fails.

    JSON keys: monitors [name, status, detail, figures], truncated.
    """
    with looking_after(where) as client:
        found = list(client.monitors())
    _MONITORS.show(found, form=form, limit=limit)
    return Exit.FAILED if any(one.status == "failing" for one in found) else Exit.ANSWERED


@click.command()
@job_argument
@json_flag
@where_flags
def runbook(*, job_id: str, as_json: bool, where: Where) -> None:
    """Say what to do about a job that does not go on: each step is a command.

    JSON keys: job_id, condition, steps [step, why, command].
    """
    with opened(where) as app:
        whole = app.job(job_id).job_id
    with looking_after(where) as client:
        found = client.runbook(whole)
    if as_json:
        write_json(found.model_dump(mode="json"))
        return
    click.echo(f"job {found.job_id}: {found.condition}")
    for number, step in enumerate(found.steps, start=1):
        click.echo(f"{number}. {step.step}" + (f" ({step.why})" if step.why else ""))
        if step.command:
            click.echo(f"   {step.command}")
