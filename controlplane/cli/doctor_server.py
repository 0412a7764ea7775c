"""What `custody doctor --server` looks at: whether a server answers, can work, is of this release, knows the key, and has our time."""

from email.utils import parsedate_to_datetime
from importlib.metadata import version

from controlplane.cli.doctor_findings import Finding
from controlplane.client import Client, ClientError
from controlplane.client.calls import Said, get
from controlplane.client.errors import Forbidden

#: Dates of HTTP are whole seconds, and an answer takes its time.
_MOST_SKEW_SECONDS = 5.0


def look(client: Client) -> list[Finding]:
    """Everything that can be found out from here; what hinders the rest comes first."""
    try:
        said = client.do(get("/healthz", lambda said: said))
    except ClientError as error:
        return [
            Finding(name="server", level="fail", words=str(error), remedy="start it, or name its address")
        ]
    return [
        Finding(name="server", level="ok", words=f"{client.server} answers"),
        _clock(said),
        _release(client),
        *_readiness(client),
        _key(client),
    ]


def _clock(said: Said) -> Finding:
    from datetime import UTC, datetime  # noqa: PLC0415

    date = said.headers.get("date")
    if date is None:
        return Finding(name="clock", level="note", words="the server does not say what time it has")
    skew = (datetime.now(UTC) - parsedate_to_datetime(date)).total_seconds()
    if abs(skew) > _MOST_SKEW_SECONDS:
        words = f"this machine is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the server"
        return Finding(
            name="clock", level="note", words=words, remedy="set both by NTP: times would mislead you"
        )
    return Finding(name="clock", level="ok", words="the same time as here")


def _release(client: Client) -> Finding:
    try:
        there = client.version()
    except ClientError as error:
        return Finding(name="release", level="fail", words=str(error))
    here = version("custody")
    words = f"server {there.version}, protocol {there.protocol}; this client {here}"
    if there.version == here:
        return Finding(name="release", level="ok", words=words)
    return Finding(name="release", level="note", words=words, remedy="install the same release here")


def _readiness(client: Client) -> list[Finding]:
    try:
        found = client.readiness()
    except ClientError as error:
        return [Finding(name="ready", level="fail", words=str(error))]
    return [
        Finding(
            name=name,
            level="ok" if said == "ok" else "fail",
            words=said,
            remedy="" if said == "ok" else "see its log",
        )
        for name, said in found.checks.items()
    ]


def _key(client: Client) -> Finding:
    try:
        who = client.whoami()
    except Forbidden as error:
        return Finding(
            name="key",
            level="fail",
            words=str(error),
            remedy="custody login NAME --server URL --key-file FILE",
        )
    except ClientError as error:
        return Finding(name="key", level="fail", words=str(error))
    return Finding(
        name="key",
        level="ok",
        words=f"{who.name} of {who.tenant_id or 'every tenant'}, {', '.join(who.roles)}",
    )
