"""One order to many jobs: which they are, a person's word for it, what became of each, and a wait for the proof."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import click
from rich.text import Text

from controlplane.api.bodies_orders import BulkOutcome, BulkRequest
from controlplane.cli.exits import Exit, Refusal
from controlplane.cli.figures import counted
from controlplane.cli.flags import Where
from controlplane.cli.home import opened
from controlplane.cli.inside import looking_after
from controlplane.cli.listing import Column, Form, Listing, confirmed, ids_of
from controlplane.cli.watch import has_ended
from controlplane.client import Client
from controlplane.custodian import ANY_JOB, Custodian, JobQuery
from controlplane.views import JobView

Verb = Literal["stop", "kill", "pause", "resume", "steer"]
#: As many as a server takes at once.
_AT_ONCE = 1_000
_POLL_SECONDS = 0.05
_STYLES = {"done": "green", "would": "cyan", "refused": "red"}

_OUTCOMES: Listing[BulkOutcome] = Listing(
    name="outcomes",
    columns=(
        Column(name="job", text=lambda one: one.job_id),
        Column(name="outcome", text=lambda one: Text(one.outcome, style=_STYLES.get(one.outcome, ""))),
        Column(name="state", text=lambda one: one.state or ""),
        Column(name="why", text=lambda one: "" if one.problem is None else one.problem.detail, is_prose=True),
    ),
    id_of=lambda one: one.job_id,
    document=lambda one: one.model_dump(mode="json"),
    empty="No job fits: nothing was done.",
)


@dataclass(frozen=True, kw_only=True)
class Mass:
    """An order to many."""

    verb: Verb
    names: Sequence[str] = ()
    query: JobQuery = ANY_JOB
    reason: str = ""
    #: What a steer says.
    text: str = ""
    dry_run: bool = False
    yes: bool = False
    form: Form = "table"
    #: How long the proof of a stop is waited for.
    seconds: float = 60.0

    @property
    def is_one(self) -> bool:
        """Whether just one job is named."""
        return len(self.names) == 1 and self.names[0] != "-" and not self.dry_run and self.query == ANY_JOB


def order(mass: Mass, where: Where) -> int:
    """Give the order; 0 when no job refused it and every stop was proved."""
    ids = _chosen(mass, where)
    if not ids:
        _OUTCOMES.show((), form=mass.form, limit=1)
        return Exit.ANSWERED
    words = f"{mass.verb} {counted(len(ids), 'job')} of {where.server or 'this home'}?"
    if not mass.dry_run and not confirmed(words, yes=mass.yes or len(ids) == 1):
        raise Refusal("nothing was done.")
    with looking_after(where) as client:
        found = _sent(client, mass, ids)
    done = [one.job_id for one in found if one.outcome == "done"]
    proved = mass.dry_run or mass.verb in ("resume", "steer") or _wait(where, done, seconds=mass.seconds)
    _OUTCOMES.show(found, form=mass.form, limit=len(found))
    _sum_up(found, mass, proved=proved)
    return Exit.FAILED if not proved or any(one.outcome == "refused" for one in found) else Exit.ANSWERED


def _chosen(mass: Mass, where: Where) -> list[str]:
    by_name = ids_of(mass.names)
    if by_name and mass.query != ANY_JOB:
        raise Refusal("name jobs, or say which by a filter: one of the two.")
    if not mass.names and mass.query == ANY_JOB:
        raise Refusal(
            f"name the jobs, '-' for ids on standard input, or say which: custody {mass.verb} --state running"
        )
    with opened(where) as app:
        if by_name:
            return [app.job(name).job_id for name in by_name] if len(by_name) == 1 else by_name
        return [line.job_id for line in app.lines(mass.query)]


def _sent(client: Client, mass: Mass, ids: Sequence[str]) -> list[BulkOutcome]:
    found: list[BulkOutcome] = []
    for first in range(0, len(ids), _AT_ONCE):
        request = BulkRequest(
            verb=mass.verb,
            ids=tuple(ids[first : first + _AT_ONCE]),
            dry_run=mass.dry_run,
            reason=mass.reason,
            text=mass.text,
        )
        found += client.bulk(request).items
    return found


def _wait(where: Where, ids: Sequence[str], *, seconds: float) -> bool:
    """Whether all of them came to rest in time."""
    deadline = time.monotonic() + seconds
    with opened(where) as app, app.at_work(frozenset()):
        return all(_rests(app, job_id, deadline=deadline) for job_id in ids)


def _rests(app: Custodian, job_id: str, *, deadline: float) -> bool:
    while not is_at_rest(view := app.job(job_id)):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return view.stop is None or view.state == "held" or view.stop.is_proved


def is_at_rest(view: JobView) -> bool:
    """Whether an order to end or to pause has come to its end."""
    return has_ended(view) or view.state in ("held", "parked", "quarantined")


def _sum_up(found: Sequence[BulkOutcome], mass: Mass, *, proved: bool) -> None:
    counts = {
        name: sum(one.outcome == name for one in found) for name in ("done", "would", "unchanged", "refused")
    }
    said = ", ".join(f"{number} {name}" for name, number in counts.items() if number)
    click.echo(f"{mass.verb}: {said}" + ("" if proved else "; NOT all of it is verified yet"), err=True)
