"""What must be so before a job is made: a sandbox that contains, and the embedded model on this machine."""

import click

from controlplane import worker_parts
from controlplane.cli.exits import Refusal
from controlplane.cli.figures import size
from controlplane.cli.models import download_progress
from controlplane.errors import Unavailable
from rlm_worker.contracts.job import SandboxPolicy


def require_sandbox(policy: SandboxPolicy | None = None) -> None:
    """Refuse where cells could not be contained as the job asks; nothing has been made yet."""
    wanted = policy or SandboxPolicy()
    report = worker_parts.sandbox_report(wanted.backend, wanted.runtime)
    if not report.is_usable:
        raise Refusal(
            f"cells cannot be contained by {report.runtime or report.backend} on this machine. {'; '.join(report.advice)}. "
            "Nothing was started; 'custody doctor' shows every layer."
        )


def ready_model(name: str, *, silent: bool) -> str:
    """The model to use: pulled if it is an embedded one that is not here yet, or the next smaller one that can be had."""
    wanted = worker_parts.model_to_pull(name)
    while wanted is not None:
        try:
            _pull(wanted, silent=silent)
        except Unavailable as problem:
            smaller = worker_parts.smaller_model(wanted)
            if smaller is None or not worker_parts.is_any(name):
                raise
            if not silent:
                click.echo(f"{problem}\nGoing on with the next smaller one, {smaller}.", err=True)
            wanted = smaller
        else:
            break
    return worker_parts.pinned(name)


def _pull(name: str, *, silent: bool) -> None:
    model = next(model for model in worker_parts.local_models() if model.name == name)
    if not silent:
        click.echo(
            f"pulling {name} ({size(model.size_bytes)}, {model.licence}), once for this machine", err=True
        )
    with download_progress(silent=silent) as on_progress:
        worker_parts.pull_model(name, on_progress=on_progress)
