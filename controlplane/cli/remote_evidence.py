"""Evidence on its way to a server: what lies here is sent as it lies, what lies elsewhere is fetched first; a bar tells how far."""

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from controlplane.adapters.content_store import ContentStore
from controlplane.adapters.intake import Intake
from controlplane.adapters.sources.typed import Source
from controlplane.api.bodies_files import EvidenceBody
from controlplane.cli.figures import size
from controlplane.cli.safe import one_line
from controlplane.client.plans import OnSent, fitting_name
from controlplane.client.streams import path_of

if TYPE_CHECKING:
    from controlplane.cli.remote import RemoteApp

#: On a pipe, less than this is not worth a line.
_WORTH_TELLING = 8 << 20


def bring_in(app: "RemoteApp", sources: Sequence[Path | Source]) -> Iterator[EvidenceBody]:
    """Every source, sent and made evidence."""
    with ExitStack() as stack:
        aside = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="custody-")))
        on_sent = stack.enter_context(sending_progress())
        taken: set[str] = set()
        for given in sources:
            source = given if isinstance(given, Source) else Source(address=str(given))
            place, name = _placed(app, source, aside)
            name = _free(fitting_name(Path(name)), taken)
            yield app.client.bring(place, name=name, plain=source.is_plain, on_sent=on_sent)


def _free(name: str, taken: set[str]) -> str:
    """The name, or the first with a number that no other piece of evidence has."""
    numbered = (name if number == 1 else f"{name}-{number}" for number in count(1))
    chosen = next(one for one in numbered if one not in taken)
    taken.add(chosen)
    return chosen


def _placed(app: "RemoteApp", source: Source, aside: Path) -> tuple[Path, str]:
    """Where a source lies on this machine, and its name."""
    if source.kind == "local":
        place = source.path.resolve()
        return place, source.name or place.name
    store = ContentStore(aside / "store")
    brought = Intake(aside, store, artifacts_of=_artifacts_of(app, aside)).bring(source)
    return brought.place, brought.name


def _artifacts_of(app: "RemoteApp", aside: Path) -> Callable[[str], Mapping[str, tuple[Path, str]]]:
    def artifacts(job_id: str) -> dict[str, tuple[Path, str]]:
        found = {}
        for kept in app.client.artifacts(app.job(job_id).job_id):
            path = path_of(kept)
            target = aside / hashlib.sha256(path.encode()).hexdigest()
            found[path] = (app.client.download(job_id, kept, target), kept.sha256)
        return found

    return artifacts


@contextmanager
def sending_progress() -> Iterator[OnSent]:
    """A progress bar on a terminal, a line a tenth on a pipe where it takes long."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _in_tenths()
        return
    columns = (
        TextColumn("sending evidence"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as bar:

        def tell(sent: int, total: int, path: str) -> None:
            task = bar.task_ids[-1] if bar.task_ids else bar.add_task("", total=total)
            bar.update(task, completed=sent, total=total, description=one_line(path, width=40))

        yield tell


def _in_tenths() -> OnSent:
    told = -1

    def tell(sent: int, total: int, _path: str) -> None:
        nonlocal told
        tenth = 10 * sent // max(total, 1)
        if total >= _WORTH_TELLING and tenth > told:
            told = tenth
            click.echo(f"sending evidence: {10 * tenth} % of {size(total)}", err=True)

    return tell
