"""`custody login`, `logout`, `profiles` and `whoami`: servers by name, with keys that are never typed on a command line."""

import sys
from pathlib import Path

import click

from controlplane.cli.exits import Exit, Refusal
from controlplane.cli.flags import Where, json_flag, where_flags
from controlplane.cli.inside import looking_after
from controlplane.cli.listing import Column, Form, Listing, list_flags
from controlplane.cli.shapes import write_json
from controlplane.client.profiles import Profile, forget_profile, keep_profile, profiles, read_key

_PROFILES: Listing[tuple[str, Profile]] = Listing(
    name="profiles",
    columns=(
        Column(name="profile", text=lambda one: one[0]),
        Column(name="server", text=lambda one: one[1].server, is_long=True),
        Column(name="key", text=lambda one: "no" if one[1].key is None else "yes"),
    ),
    id_of=lambda one: one[0],
    document=lambda one: {"name": one[0], "server": one[1].server, "has_key": one[1].key is not None},
    empty="No profiles yet. Make one with: custody login NAME --server URL --key-file FILE",
)


@click.command()
@click.argument("name")
@click.option(
    "--server", required=True, metavar="URL", help="Where it is, as in https://custody.example.org."
)
@click.option(
    "--key-file", type=click.Path(path_type=Path), metavar="FILE", help="A file that holds the key."
)
@click.option("--key", "source", metavar="-", help="'-': the key comes on standard input.")
@click.option("--plain-http", is_flag=True, help="The way there is safe although it is not encrypted.")
@json_flag
def login(
    *, name: str, server: str, key_file: Path | None, source: str | None, plain_http: bool, as_json: bool
) -> None:
    """Keep a server and its key under a name: then '--server NAME' or CUSTODY_SERVER=NAME.

    On a terminal the key is asked for when no file is named. It is kept in a file that only you can read.
    JSON keys: name, server, who, tenant_id, roles, file.
    """
    if not name or "/" in name or ":" in name:
        raise Refusal(f"{name!r} is no name for a profile: use letters, digits, '-' and '.'.")
    profile = Profile(server=server.rstrip("/"), key=_key(key_file, source), plain_http=plain_http)
    with profile.client() as client:
        who = client.whoami()
    file = keep_profile(name, profile)
    if as_json:
        known = {"who": who.name, "tenant_id": who.tenant_id, "roles": list(who.roles)}
        write_json({"name": name, "server": profile.server, **known, "file": str(file)})
        return
    whose = "every tenant" if who.tenant_id is None else f"tenant {who.tenant_id}"
    click.echo(f"{name}: {profile.server} knows you as {who.name} ({', '.join(who.roles)}) of {whose}")
    click.echo(f"Kept in {file}. Use it with: custody jobs --server {name}", err=True)


def _key(file: Path | None, source: str | None) -> str | None:
    if source not in (None, "-"):
        raise Refusal(
            "a key on the command line is in the list of processes and in the shell's history: "
            "use --key-file FILE, or --key - and standard input. Consider that key known, and revoke it."
        )
    if file is not None:
        return read_key(file)
    if source == "-":
        return sys.stdin.readline().strip() or None
    if sys.stdin.isatty():
        return (
            click.prompt("key (empty for none)", default="", show_default=False, hide_input=True, err=True)
            or None
        )
    return None


@click.command()
@click.argument("name")
def logout(*, name: str) -> None:
    """Forget a profile and its key. The key stays valid: 'custody keys revoke' ends it."""
    forget_profile(name)
    click.echo(f"{name} is forgotten")


@click.command("profiles")
@list_flags
def list_profiles(*, form: Form, limit: int) -> None:
    """List the servers you have logged in to. No key is shown.

    JSON keys: profiles [name, server, has_key], truncated.
    """
    _PROFILES.show(sorted(profiles().items()), form=form, limit=limit)


@click.command()
@json_flag
@where_flags
def whoami(*, as_json: bool, where: Where) -> int:
    """Say who you are to a server, and what you may do there.

    JSON keys: name, tenant_id, roles, capabilities, credential_id.
    """
    with looking_after(where) as client:
        who = client.whoami()
    if as_json:
        write_json(who.model_dump(mode="json"))
    else:
        click.echo(f"{who.name} of {who.tenant_id or 'every tenant'}, as {', '.join(who.roles)}")
        click.echo(f"may: {', '.join(who.capabilities)}")
    return Exit.ANSWERED
