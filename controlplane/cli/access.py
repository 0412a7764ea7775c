"""`custody keys`, `tenants`, `permissions`, `audit` and `budgets`: who may do what, who did it, and what each tenant may use."""

from decimal import Decimal, InvalidOperation
from typing import cast, get_args

import click
from pydantic import ValidationError
from rich.text import Text

from controlplane.api.bodies_admin import (
    AuditBody,
    BudgetBody,
    Constraints,
    KeyBody,
    KeyRequest,
    LimitsBody,
    PermissionBody,
    PermissionRequest,
    TenantBody,
    TenantChange,
    TenantRequest,
)
from controlplane.cli.exits import Refusal
from controlplane.cli.figures import age, count, money
from controlplane.cli.filters import moment_of
from controlplane.cli.flags import Where, json_flag, where_flags
from controlplane.cli.inside import looking_after
from controlplane.cli.listing import Column, Form, Listing, confirmed, list_flags
from controlplane.cli.parsing import parse_labels
from controlplane.cli.shapes import write_json
from controlplane.domain.identity import Capability, Role


def _key_state(one: KeyBody) -> Text:
    if one.revoked_at is not None:
        return Text("revoked", style="dim")
    return Text("in force" if one.expires_at is None else f"until {one.expires_at:%Y-%m-%d}", style="green")


_KEYS: Listing[KeyBody] = Listing(
    name="keys",
    columns=(
        Column(name="key", text=lambda one: one.key_id),
        Column(name="of", text=lambda one: one.principal, is_long=True),
        Column(name="tenant", text=lambda one: one.tenant_id or "all"),
        Column(name="roles", text=lambda one: ", ".join(one.roles), is_long=True),
        Column(name="state", text=_key_state),
        Column(name="used", text=lambda one: "never" if one.used_at is None else f"{age(one.used_at)} ago"),
        Column(name="made by", text=lambda one: one.created_by, is_wide=True),
        Column(name="note", text=lambda one: one.note, is_wide=True, is_prose=True),
    ),
    id_of=lambda one: one.key_id,
    document=lambda one: one.model_dump(mode="json"),
    empty="No keys yet. Make one with: custody keys create NAME --role submitter",
)

_TENANTS: Listing[TenantBody] = Listing(
    name="tenants",
    columns=(
        Column(name="tenant", text=lambda one: one.tenant_id),
        Column(
            name="state", text=lambda one: Text("suspended", style="red") if one.is_suspended else "active"
        ),
        Column(
            name="jobs at once",
            text=lambda one: "" if one.max_jobs is None else str(one.max_jobs),
            is_number=True,
        ),
        Column(name="weight", text=lambda one: str(one.weight), is_number=True),
        Column(name="name", text=lambda one: one.name, is_prose=True),
    ),
    id_of=lambda one: one.tenant_id,
    document=lambda one: one.model_dump(mode="json"),
    empty="No tenants were entered.",
)

_PERMISSIONS: Listing[PermissionBody] = Listing(
    name="permissions",
    columns=(
        Column(name="permission", text=lambda one: one.permission_id),
        Column(
            name="effect", text=lambda one: Text(one.effect, style="red" if one.effect == "deny" else "green")
        ),
        Column(name="subject", text=lambda one: one.subject, is_long=True),
        Column(name="capability", text=lambda one: one.capability),
        Column(name="state", text=lambda one: "ended" if one.revoked_at else "in force"),
        Column(name="tenant", text=lambda one: one.tenant_id, is_wide=True),
        Column(name="only", text=lambda one: str(one.constraints or ""), is_wide=True, is_prose=True),
    ),
    id_of=lambda one: one.permission_id,
    document=lambda one: one.model_dump(mode="json"),
    empty="Nothing is granted or denied beyond the roles.",
)

_AUDIT: Listing[AuditBody] = Listing(
    name="audit",
    columns=(
        Column(name="when", text=lambda one: f"{one.at:%Y-%m-%d %H:%M:%S}"),
        Column(name="who", text=lambda one: one.principal),
        Column(name="act", text=lambda one: one.action),
        Column(
            name="outcome",
            text=lambda one: Text(one.outcome, style="red" if one.outcome == "refused" else ""),
        ),
        Column(name="to", text=lambda one: one.target, is_long=True),
        Column(name="reason", text=lambda one: one.reason, is_wide=True, is_prose=True),
    ),
    id_of=lambda one: str(one.audit_id),
    document=lambda one: one.model_dump(mode="json"),
    empty="Nobody did anything that is audited.",
)

_BUDGETS: Listing[BudgetBody] = Listing(
    name="budgets",
    columns=(
        Column(name="tenant", text=lambda one: one.tenant_id),
        Column(name="spent", text=lambda one: money(one.spent.cost_usd), is_number=True),
        Column(name="held", text=lambda one: money(one.held.cost_usd), is_number=True),
        Column(name="limit", text=lambda one: _usd(one.limits.cost_usd), is_number=True),
        Column(name="subcalls", text=lambda one: count(one.spent.subcalls), is_wide=True, is_number=True),
        Column(
            name="tokens",
            text=lambda one: count(one.spent.input_tokens + one.spent.output_tokens),
            is_number=True,
        ),
        Column(name="token limit", text=lambda one: _limit(one.limits.tokens), is_number=True),
    ),
    id_of=lambda one: one.tenant_id,
    document=lambda one: one.model_dump(mode="json"),
    empty="No tenant has a budget yet.",
)


def _usd(limit: Decimal | None) -> str:
    return "none" if limit is None else money(limit)


def _limit(limit: int | None) -> str:
    return "none" if limit is None else count(limit)


@click.group()
def keys() -> None:
    """Make, list and revoke keys of the API."""


@keys.command("list")
@list_flags
@where_flags
def list_keys(*, form: Form, limit: int, where: Where) -> None:
    """List keys, without their secrets.

    JSON keys: keys [key_id, tenant_id, principal, roles, note, created_at, expires_at, revoked_at, used_at], truncated.
    """
    with looking_after(where) as client:
        _KEYS.show(client.keys(), form=form, limit=limit)


@keys.command()
@click.argument("principal", metavar="NAME")
@click.option(
    "--role", "roles", multiple=True, required=True, type=click.Choice(get_args(Role)), help="Repeatable."
)
@click.option("--tenant", metavar="T", help="Whose. Default: your own; for a home: all of them.")
@click.option("--expires", metavar="AGE|TIME", help="When it ends by itself: 30d, 12h, or a date.")
@click.option("--note", default="", help="What it is for.")
@json_flag
@where_flags
def create(
    *,
    principal: str,
    roles: tuple[Role, ...],
    expires: str | None,
    as_json: bool,
    where: Where,
    **given: str | None,
) -> None:
    """Make a key for a person or a program. Its secret is shown this once: the first line on stdout is the key.

    JSON keys: as 'custody keys list', and key.
    """
    ends = None if expires is None else moment_of(expires, ahead=True)
    try:
        request = KeyRequest(
            principal=principal,
            roles=frozenset(roles),
            tenant_id=given["tenant"],
            note=given["note"] or "",
            expires_at=ends,
        )
    except ValidationError as error:
        raise Refusal(f"this key cannot be made: {error.errors()[0]['msg']}") from None
    with looking_after(where) as client:
        made = client.make_key(request)
    if as_json:
        write_json(made.model_dump(mode="json"))
        return
    click.echo(made.key)
    click.echo(
        f"Key {made.key_id} of {made.principal} ({', '.join(made.roles)}, tenant {made.tenant_id or 'all'}). It is shown "
        "this once: put it into a file that only its owner reads, then 'custody login NAME --server URL --key-file FILE'.",
        err=True,
    )


@keys.command()
@click.argument("key_id", metavar="KEY")
@json_flag
@where_flags
def revoke(*, key_id: str, as_json: bool, where: Where) -> None:
    """End a key, for good; what it is asked from then on is refused."""
    with looking_after(where) as client:
        ended = client.revoke_key(key_id)
    if as_json:
        write_json(ended.model_dump(mode="json"))
    else:
        click.echo(f"key {ended.key_id} of {ended.principal} is revoked")


@click.group()
def tenants() -> None:
    """List, make and change tenants."""


@tenants.command("list")
@list_flags
@where_flags
def list_tenants(*, form: Form, limit: int, where: Where) -> None:
    """List the tenants that you may see.

    JSON keys: tenants [tenant_id, name, is_suspended, max_jobs, weight, created_at], truncated.
    """
    with looking_after(where) as client:
        _TENANTS.show(client.tenants(), form=form, limit=limit)


@tenants.command("create")
@click.argument("tenant_id", metavar="TENANT")
@click.option("--name", default="", help="What people call it.")
@click.option("--max-jobs", type=click.IntRange(1), help="Jobs of it at work at once.")
@click.option(
    "--weight", type=click.IntRange(1, 1_000), default=1, show_default=True, help="Its share of the workers."
)
@json_flag
@where_flags
def create_tenant(
    *, tenant_id: str, name: str, max_jobs: int | None, weight: int, as_json: bool, where: Where
) -> None:
    """Make a tenant. JSON keys: as 'custody tenants list'."""
    try:
        request = TenantRequest(tenant_id=tenant_id, name=name, max_jobs=max_jobs, weight=weight)
    except ValidationError as error:
        raise Refusal(f"this tenant cannot be made: {error.errors()[0]['msg']}") from None
    with looking_after(where) as client:
        made = client.make_tenant(request)
    if as_json:
        write_json(made.model_dump(mode="json"))
    else:
        click.echo(f"tenant {made.tenant_id} is made")


@tenants.command("set")
@click.argument("tenant_id", metavar="TENANT")
@click.option("--name", help="What people call it.")
@click.option("--max-jobs", type=click.IntRange(1), help="Jobs of it at work at once.")
@click.option("--weight", type=click.IntRange(1, 1_000), help="Its share of the workers.")
@click.option("--suspend/--unsuspend", "is_suspended", default=None, help="Whether its requests are refused.")
@json_flag
@where_flags
def set_tenant(*, tenant_id: str, as_json: bool, where: Where, **given: object) -> None:
    """Change a tenant. JSON keys: as 'custody tenants list'."""
    change = TenantChange.model_validate({name: value for name, value in given.items() if value is not None})
    if not change.model_fields_set:
        raise Refusal("say what to change: --name, --max-jobs, --weight, --suspend or --unsuspend.")
    with looking_after(where) as client:
        changed = client.change_tenant(tenant_id, change)
    if as_json:
        write_json(changed.model_dump(mode="json"))
    else:
        click.echo(
            f"tenant {changed.tenant_id} is changed" + (", and suspended" if changed.is_suspended else "")
        )


@click.group()
def permissions() -> None:
    """Grant, deny and revoke what goes beyond the roles."""


@permissions.command("list")
@list_flags
@where_flags
def list_permissions(*, form: Form, limit: int, where: Where) -> None:
    """List permissions.

    JSON keys: permissions [permission_id, tenant_id, subject, capability, effect, constraints, …], truncated.
    """
    with looking_after(where) as client:
        _PERMISSIONS.show(client.permissions(), form=form, limit=limit)


@permissions.command()
@click.argument("subject", metavar="NAME|role:ROLE")
@click.argument("capability", type=click.Choice(get_args(Capability)))
@click.option("--deny", is_flag=True, help="Take it away instead; a denial wins.")
@click.option("--tenant", "tenant_id", metavar="T", help="In which tenant. Default: your own.")
@click.option(
    "--label", "labels", multiple=True, metavar="K=V", help="Only for jobs with this label; repeatable."
)
@click.option("--expires", metavar="AGE|TIME", help="When it ends by itself.")
@where_flags
def grant(
    *,
    subject: str,
    capability: Capability,
    deny: bool,
    tenant_id: str | None,
    labels: tuple[str, ...],
    expires: str | None,
    where: Where,
) -> None:
    """Let somebody do something beyond the roles, or take it away."""
    try:
        request = PermissionRequest(
            subject=subject,
            capability=capability,
            effect="deny" if deny else "allow",
            tenant_id=tenant_id,
            constraints=Constraints(labels=parse_labels(labels) or None),
            expires_at=None if expires is None else moment_of(expires, ahead=True),
        )
    except ValidationError as error:
        raise Refusal(f"this cannot be granted: {error.errors()[0]['msg']}") from None
    with looking_after(where) as client:
        made = client.grant(request)
    click.echo(f"permission {made.permission_id}: {made.effect} {made.capability} to {made.subject}")


@permissions.command("revoke")
@click.argument("permission_id", metavar="PERMISSION")
@where_flags
def revoke_permission(*, permission_id: str, where: Where) -> None:
    """End a permission, for good."""
    with looking_after(where) as client:
        ended = client.revoke_permission(permission_id)
    click.echo(f"permission {ended.permission_id} is ended")


@click.command()
@list_flags
@where_flags
def audit(*, form: Form, limit: int, where: Where) -> None:
    """List who did what, and what was refused, newest first.

    JSON keys: audit [audit_id, tenant_id, principal, action, target, outcome, reason, at], truncated.
    """
    with looking_after(where) as client:
        _AUDIT.show(client.audit(), form=form, limit=limit)


@click.group(invoke_without_command=True)
@list_flags
@where_flags
@click.pass_context
def budgets(ctx: click.Context, *, form: Form, limit: int, where: Where) -> None:
    """List what tenants may use, have used and have set aside; 'custody budgets set' bounds one.

    JSON keys: budgets [tenant_id, limits, spent, held], truncated.
    """
    if ctx.invoked_subcommand is None:
        with looking_after(where) as client:
            _BUDGETS.show(client.budgets(), form=form, limit=limit)


@budgets.command("set")
@click.argument("tenant_id", metavar="TENANT")
@click.option("--usd", metavar="N", help="Dollars.")
@click.option("--tokens", type=click.IntRange(0), help="Tokens, in and out.")
@click.option("--subcalls", type=click.IntRange(0), help="Subcalls.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@where_flags
def set_budget(
    *, tenant_id: str, usd: str | None, tokens: int | None, subcalls: int | None, yes: bool, where: Where
) -> None:
    """Bound what a tenant may use from now on. What is left out is unlimited."""
    try:
        limits = LimitsBody(cost_usd=None if usd is None else Decimal(usd), tokens=tokens, subcalls=subcalls)
    except (InvalidOperation, ValidationError):
        raise Refusal(f"--usd wants dollars, as in 25.00, not {usd!r}") from None
    if cast("object", limits) == LimitsBody() and not confirmed(
        f"Let {tenant_id} use whatever it likes?", yes=yes
    ):
        raise Refusal("nothing was done.")
    with looking_after(where) as client:
        made = client.set_budget(tenant_id, limits)
    click.echo(
        f"tenant {made.tenant_id} may use {_usd(made.limits.cost_usd)} in dollars, {_limit(made.limits.tokens)} tokens, "
        f"{_limit(made.limits.subcalls)} subcalls"
    )
