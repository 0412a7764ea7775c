"""Work on one job in this process, show it, and say how it ended: what run, demo and resume share."""

from dataclasses import dataclass

import click

from controlplane.cli.answer import render_end
from controlplane.cli.consoles import stdout_console
from controlplane.cli.exits import Exit, exit_of_state
from controlplane.cli.logs import log_with_errors
from controlplane.cli.people import question_line
from controlplane.cli.screens import screen_for
from controlplane.cli.shapes import job_document, write_json
from controlplane.cli.watch import Presses, asks_a_person, watch
from controlplane.custodian import Custodian
from controlplane.views import JobView


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a command speaks: one JSON document, the answer alone, or the work as well."""

    as_json: bool = False
    quiet: bool = False


def work_on(app: Custodian, job_id: str, *, manner: Manner) -> int:
    """Run the embedded worker for one job until it has ended; the exit code tells how."""
    screen = screen_for(silent=manner.as_json or manner.quiet)
    with Presses() as presses:
        with app.at_work({job_id}), screen:
            view = watch(app, job_id, screen=screen, presses=presses)
        if asks_a_person(view):
            _show_questions(app, view, manner=manner)
        else:
            show_end(view, manner=manner, interrupted=presses.count > 0)
        _point_to_log(view, manner=manner)
    return Exit.INTERRUPTED if presses.count else exit_of_state(view.state)


def _show_questions(app: Custodian, view: JobView, *, manner: Manner) -> None:
    if manner.as_json:
        write_json(job_document(view, whole=True))
        return
    for asked in app.questions(view.job_id):
        click.echo(question_line(asked))
    click.echo("It is parked and holds nothing until then.", err=True)


def _point_to_log(view: JobView, *, manner: Manner) -> None:
    """A failure whose cause is in the log says where that is."""
    log = log_with_errors()
    if log is not None and view.state in ("failed", "quarantined") and not (manner.as_json or manner.quiet):
        click.echo(f"custody: what went wrong inside is written down in {log}", err=True)


def show_end(view: JobView, *, manner: Manner, interrupted: bool = False) -> None:
    """Print the end of a job to stdout."""
    if manner.as_json:
        write_json(job_document(view, whole=True))
        return
    console = stdout_console()
    console.print(render_end(view, next_steps=not manner.quiet))
    if interrupted:
        console.print(kept(view), markup=False, highlight=False)


def kept(view: JobView) -> str:
    """What an interrupted job leaves behind."""
    answer = "no answer was drafted"
    if view.result is not None and view.result.structured_output is not None:
        answer = f"the answer so far (by {view.result.answered_by})"
    return f"Interrupted. Kept: {answer}, the spend, and a trace of {view.trace_events} events."
