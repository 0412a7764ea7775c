"""`custody worker`: works on any ready job of a home, or hands over to `custody-worker` for those of a server."""

import os
import shutil
import sys
from pathlib import Path

import click

from controlplane.bootstrap import App
from controlplane.cli.exits import Exit, Refusal
from controlplane.cli.flags import Where, where_flags
from controlplane.cli.home import opened_home
from controlplane.cli.watch import Presses
from controlplane.runtime import EmbeddedRuntime

_POLL_SECONDS = 0.2


@click.command()
@click.option("--once", is_flag=True, help="End when no job is ready or working.")
@where_flags
def worker(*, once: bool, where: Where) -> int:
    """Work on any ready job of this home, until Ctrl-C; with --server on those of a server, with a key of the role worker.

    Jobs under way when it ends keep their journal; the next worker goes on with them.
    """
    if where.server is not None:
        return _hand_over(where.server, once=once)
    with opened_home(where.home, must_exist=False) as app, Presses() as presses, EmbeddedRuntime(app):
        click.echo("custody worker: ready", err=True)
        seen: dict[str, str] = {}
        while not presses.count:
            if _report(app, seen) == 0 and once:
                return Exit.ANSWERED
            presses.wait(_POLL_SECONDS)
    return Exit.ANSWERED


def _report(app: App, seen: dict[str, str]) -> int:
    """Say what changed, and count the jobs that are not over."""
    open_jobs = 0
    for view in app.jobs(limit=200):
        open_jobs += 0 if view.is_terminal or view.state in ("held", "parked") else 1
        if seen.get(view.job_id, view.state if view.is_terminal else "") != view.state:
            click.echo(f"job {view.job_id}: {view.state}", err=True)
        seen[view.job_id] = view.state
    return open_jobs


def _hand_over(server: str, *, once: bool) -> int:
    """Become `custody-worker`, which knows nothing of databases; its key goes through the environment."""
    from controlplane.client.profiles import profile_of  # noqa: PLC0415  # a home needs no client

    if once:
        raise Refusal("--once is for a home: a worker of a server takes up jobs until it is told to end.")
    profile = profile_of(server)
    if profile.key is None:
        raise Refusal(
            f"a worker of {profile.server} needs a key: custody keys create NAME --role worker, then 'custody login'."
        )
    program = shutil.which(
        "custody-worker", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    )
    if program is None:
        raise Refusal("custody-worker is not installed beside custody: install the package again.")
    words = [program, "--server", profile.server, *(["--insecure"] if profile.plain_http else [])]
    sys.stderr.flush()
    os.execve(program, words, {**os.environ, "CUSTODY_WORKER_KEY": profile.key})  # noqa: S606
