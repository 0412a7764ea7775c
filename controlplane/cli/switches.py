"""`custody kill`, `release` and `switches`: jobs ended at once, and what lets nothing of a scope start until it is released."""

from typing import Any, cast

import click
from rich.text import Text

from controlplane.api.bodies_admin import SwitchBody, SwitchRequest, SwitchScope
from controlplane.cli.exits import Exit, Refusal
from controlplane.cli.figures import age
from controlplane.cli.flags import Where, json_flag, where_flags
from controlplane.cli.inside import looking_after
from controlplane.cli.listing import Column, Form, Listing, confirmed, list_flags
from controlplane.cli.orders import give, mass_flags
from controlplane.cli.shapes import write_json

_SWITCHES: Listing[SwitchBody] = Listing(
    name="switches",
    columns=(
        Column(name="switch", text=lambda one: str(one.order_id)),
        Column(
            name="stops",
            text=lambda one: Text(_reach(one), style="red" if one.released_at is None else "dim"),
        ),
        Column(name="how", text=lambda one: one.action),
        Column(name="age", text=lambda one: age(one.at)),
        Column(name="by", text=lambda one: one.by),
        Column(name="released", text=lambda one: one.released_by, is_wide=True),
        Column(name="reason", text=lambda one: one.reason, is_prose=True),
    ),
    id_of=lambda one: str(one.order_id),
    document=lambda one: one.model_dump(mode="json"),
    empty="No kill switch is in force.",
)


def _reach(one: SwitchBody) -> str:
    what = one.scope_kind if not one.scope_id else f"{one.scope_kind} {one.scope_id}"
    return what if not one.tenant_id or one.scope_kind == "tenant" else f"{what} of {one.tenant_id}"


@click.command()
@mass_flags
@click.option("--all", "everything", is_flag=True, help="A switch on everything.")
@click.option("--tenant", metavar="T", help="A switch on all jobs of a tenant.")
@click.option("--task", metavar="TASK", help="A switch on all jobs of a task.")
@click.option("--tool", metavar="NAME", help="A switch on jobs that may use a tool.")
@click.option("--model", metavar="NAME", help="A switch on jobs that ask a model.")
@click.option("--image", metavar="NAME", help="A switch on workers of an image.")
@click.option("--reason", default="", help="Why; a switch must have one.")
@click.option("--timeout", "seconds", default=60.0, show_default=True, help="Seconds to wait for the proof.")
@json_flag
@where_flags
def kill(*, reason: str, as_json: bool, where: Where, everything: bool, **given: Any) -> int:
    r"""Kill jobs at once, or put a kill switch on a scope: nothing of it starts until it is released.

    \b
    custody kill JOB
    custody kill --tenant acme --reason "spends too fast"
    custody release 7 --reason "limits are set"

    Jobs: as 'custody stop'. JSON keys of a switch: order_id, scope_kind, scope_id, action, reason, by, at.
    """
    scopes = {"tenant": given.pop("tenant"), "task": given.pop("task"), "tool": given.pop("tool")}
    scopes |= {"model": given.pop("model"), "image": given.pop("image")}
    chosen = [(scope, value) for scope, value in scopes.items() if value]
    if everything:
        chosen.append(("all", ""))
    if not chosen:
        return give("kill", where, as_json=as_json, reason=reason, **given)
    if len(chosen) > 1 or given["names"]:
        raise Refusal("one thing at a time: name jobs, or one scope of a switch.")
    request = _request(*chosen[0], reason=reason)
    return _engage(request, where, dry_run=given["dry_run"], yes=given["yes"], as_json=as_json)


def _request(scope: str, scope_id: str, *, reason: str) -> SwitchRequest:
    if not reason.strip():
        raise Refusal(
            "say why with --reason: whoever finds the switch in force must know when to release it."
        )
    return SwitchRequest(scope_kind=cast("SwitchScope", scope), scope_id=scope_id, reason=reason)


def _engage(request: SwitchRequest, where: Where, *, dry_run: bool, yes: bool, as_json: bool) -> int:
    what = f"{request.scope_kind} {request.scope_id}".strip()
    if dry_run:
        click.echo(
            f"a kill switch would be put on {what}: its jobs end, and none of it starts. Nothing was done."
        )
        return Exit.ANSWERED
    if not confirmed(f"Put a kill switch on {what}: its jobs end, and none of it starts?", yes=yes):
        raise Refusal("nothing was done.")
    with looking_after(where) as client:
        made = client.engage(request)
    if as_json:
        write_json(made.model_dump(mode="json"))
    else:
        click.echo(
            f"switch {made.order_id} is in force on {_reach(made)}. Release it with: "
            f"custody release {made.order_id} --reason …"
        )
    return Exit.ANSWERED


@click.command()
@click.argument("switch_id", type=int, metavar="SWITCH")
@click.option("--reason", required=True, help="Why; kept with the switch.")
@json_flag
@where_flags
def release(*, switch_id: int, reason: str, as_json: bool, where: Where) -> None:
    """Release a kill switch: what it held back may start again.

    JSON keys: as 'custody switches'.
    """
    with looking_after(where) as client:
        released = client.release(switch_id, reason=reason)
    if as_json:
        write_json(released.model_dump(mode="json"))
    else:
        click.echo(f"switch {switch_id} on {_reach(released)} is released")


@click.command()
@click.option("--released", is_flag=True, help="Those of before, too.")
@list_flags
@where_flags
def switches(*, released: bool, form: Form, limit: int, where: Where) -> None:
    """List the kill switches in force.

    JSON keys: switches [order_id, scope_kind, scope_id, tenant_id, action, reason, by, at, released_at, …], truncated.
    """
    with looking_after(where) as client:
        _SWITCHES.show(client.switches(ended=released), form=form, limit=limit)
