"""`custody doctor`: could a job run here, and what would have to change? Each finding carries its remedy."""

import platform
import shutil
import sys
from dataclasses import asdict

import click
from rich.table import Table
from rich.text import Text

from controlplane import worker_parts
from controlplane.bootstrap import open_app, store_report
from controlplane.cli.consoles import stdout_console
from controlplane.cli.doctor_findings import Finding, Level, findings_table, is_fine
from controlplane.cli.exits import Exit
from controlplane.cli.figures import size
from controlplane.cli.flags import Where, json_flag, where_flags
from controlplane.cli.home import client_of, settings_of
from controlplane.cli.safe import printable
from controlplane.cli.shapes import write_json
from controlplane.config import Settings, setting_rows
from controlplane.errors import ControlPlaneError
from controlplane.worker_parts import SANDBOXES

_LITTLE_DISK = 1 << 30
_MUCH_SKEW_MS = 1_000


@click.command()
@json_flag
@where_flags
def doctor(*, as_json: bool, where: Where) -> int:
    """Say whether a job could run here, and what is missing; with --server, how that server is.

    Exits 0 when a job could run, 4 when not. JSON keys: ok, findings [name, level, words, remedy],
    settings [name, value, source], sandbox, sandboxes [by name, all that could contain cells], keys [names only];
    of a server: ok, findings.
    """
    if where.server is not None:
        return _server(where.server, as_json=as_json)
    settings = settings_of(where.home)
    reports = {name: worker_parts.sandbox_report(*choice) for name, choice in SANDBOXES.items()}
    report = reports.get(settings.sandbox) or reports["namespaces"]
    findings = [
        _python(),
        _store(settings),
        _queue(settings),
        _sandbox(report),
        *(_by_name(name, other) for name, other in reports.items() if other is not report),
        _home(settings),
        _driver(settings),
        _embedded(),
    ]
    fine = is_fine(findings)
    if as_json:
        write_json(
            {
                "ok": fine,
                "findings": [asdict(finding) for finding in findings],
                "settings": [{"name": n, "value": v, "source": s} for n, v, s in setting_rows(settings)],
                "sandbox": report.document(),
                "sandboxes": {name: one.document() for name, one in reports.items()},
                "keys": worker_parts.provider_keys(),
            }
        )
    else:
        _print(findings, settings=settings, fine=fine)
    return Exit.ANSWERED if fine else Exit.FAILED


def _server(server: str, *, as_json: bool) -> int:
    from controlplane.cli.doctor_server import look  # noqa: PLC0415  # a home needs no client

    with client_of(server) as client:
        findings = look(client)
    fine = is_fine(findings)
    if as_json:
        write_json({"ok": fine, "findings": [asdict(finding) for finding in findings]})
    else:
        console = stdout_console()
        console.print(findings_table(findings))
    return Exit.ANSWERED if fine else Exit.FAILED


def _print(findings: list[Finding], *, settings: Settings, fine: bool) -> None:
    console = stdout_console()
    console.print(findings_table(findings))
    rows = Table.grid(padding=(0, 2))
    for name, value, source in setting_rows(settings):
        rows.add_row("", Text(name), Text(printable(value)), Text(source, style="dim"))
    console.print(Text("\nsettings", style="bold"))
    console.print(rows)
    verdict = "A job can run here." if fine else "A job cannot run here yet: see FAIL above."
    console.print(Text(f"\n{verdict}", style="bold green" if fine else "bold red"))


def _queue(settings: Settings) -> Finding:
    """What carries wake-ups; Redis is asked, a table is as well as its database."""
    if not settings.redis_url:
        return Finding(name="queue", level="ok", words="a table beside the database")
    try:
        app = open_app(settings)
    except ControlPlaneError as error:
        return Finding(name="queue", level="note", words=f"Redis, not asked: {error}")
    try:
        problem = app.queue_problem()
    finally:
        app.close()
    if problem:
        return Finding(
            name="queue",
            level="fail",
            words=f"Redis: {problem}",
            remedy="start it: jobs wait until it answers",
        )
    return Finding(name="queue", level="ok", words="Redis")


def _python() -> Finding:
    words = f"{platform.python_version()} on {platform.system()} {platform.release()}"
    if sys.platform != "linux":
        return Finding(name="python", level="fail", words=words, remedy="the sandbox needs Linux")
    return Finding(name="python", level="ok", words=words)


def _store(settings: Settings) -> Finding:
    try:
        found = store_report(settings)
    except ControlPlaneError as error:
        remedy = "start the server, or set CUSTODY_DATABASE_URL to another one"
        return Finding(name="store", level="fail", words=str(error), remedy=remedy)
    words = found.words
    if settings.database_url is not None:
        words += f"; its clock is {found.skew_ms:+,} ms from this host's"
    if found.problem:
        remedy = "install pysqlite3 (it carries a newer SQLite)"
        return Finding(name="store", level="note", words=f"{words} {found.problem}", remedy=remedy)
    if abs(found.skew_ms) > _MUCH_SKEW_MS:
        remedy = (
            "let both follow the same time server: leases go by the database's clock, logs by this host's"
        )
        return Finding(name="store", level="note", words=words, remedy=remedy)
    return Finding(name="store", level="ok", words=words)


def _sandbox(report: worker_parts.SandboxReport) -> Finding:
    active = ", ".join(layer.name for layer in report.layers if layer.is_active) or "none"
    missing = [layer.name for layer in report.layers if not layer.is_active]
    words = f"{report.backend}: {active}" + (f"; not active: {', '.join(missing)}" if missing else "")
    level: Level = "fail" if not report.is_usable else "note" if missing else "ok"
    return Finding(name="sandbox", level=level, words=words, remedy=" ".join(report.advice))


def _by_name(name: str, report: worker_parts.SandboxReport) -> Finding:
    """A sandbox that a job gets only by asking for it: its absence hinders nobody else."""
    if not report.is_usable:
        return Finding(name=name, level="note", words="not available here", remedy=" ".join(report.advice))
    missing = [layer.name for layer in report.layers if not layer.is_active]
    words = ", ".join(layer.note or layer.name for layer in report.layers if layer.is_active)
    return Finding(
        name=name, level="ok", words=words + (f"; not active: {', '.join(missing)}" if missing else "")
    )


def _home(settings: Settings) -> Finding:
    place = settings.home
    existing = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    free = shutil.disk_usage(existing).free
    words = f"{place}, {size(free)} free" + ("" if place.exists() else ", made by the first job")
    if free < _LITTLE_DISK:
        return Finding(name="home", level="note", words=words, remedy="make room, or choose another --home")
    return Finding(name="home", level="ok", words=words)


def _driver(settings: Settings) -> Finding:
    root, sub = worker_parts.default_models()
    root, sub = settings.model or root, settings.sub_model or sub
    keys = ", ".join(worker_parts.provider_keys()) or "none"
    if root is None:
        return Finding(
            name="models",
            level="note",
            words=f"keys: {keys}; cells are written by playbooks, predict() is answered by {sub}",
            remedy="set a provider's key or CUSTODY_MODEL to let a model write the cells",
        )
    return Finding(name="models", level="ok", words=f"keys: {keys}; cells by {root}, predict() by {sub}")


def _embedded() -> Finding:
    here = [model.name for model in worker_parts.local_models() if model.is_installed]
    if here:
        return Finding(name="embedded", level="ok", words=f"installed: {', '.join(here)}")
    return Finding(
        name="embedded",
        level="note",
        words="no embedded model is installed; the first job that needs one pulls it",
        remedy="custody models pull qwen2.5-coder-1.5b",
    )
