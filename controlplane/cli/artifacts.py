"""`custody artifacts`: the files a job made and kept, listed, or copied into an empty folder."""

import hashlib
import os
from pathlib import Path
from typing import IO

import click

from controlplane.cli.exits import Refusal
from controlplane.cli.figures import size
from controlplane.cli.flags import Where, job_argument, json_flag, where_flags
from controlplane.cli.home import opened
from controlplane.cli.safe import one_line
from controlplane.cli.shapes import write_json
from controlplane.custodian import Custodian
from controlplane.errors import Tampered
from controlplane.views import JobView
from rlm_worker.contracts.result import ArtifactRef

_BLOCK = 1 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@click.command()
@job_argument
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Copy the files there.")
@json_flag
@where_flags
def artifacts(job_id: str, *, out: Path | None, as_json: bool, where: Where) -> None:
    """List the files a job made and kept (`custody run --collect GLOB`); --out DIR copies them.

    JSON keys: artifacts [path, digest, size_bytes, file].
    """
    with opened(where) as app:
        view = app.job(job_id)
        refs = refs_of(view)
        if out is not None:
            copy_artifacts(app, view, out)
        places = [app.place_of(ref) for ref in refs]
    if as_json:
        kept = zip(refs, places, strict=True)
        write_json({"artifacts": [{**ref.model_dump(), "file": place and str(place)} for ref, place in kept]})
        return
    for ref in refs:
        click.echo(f"{ref.digest[:12]}  {size(ref.size_bytes):>9}  {one_line(ref.path, width=200)}")
    if not refs:
        click.echo("This job kept no files: name some with custody run --collect GLOB.", err=True)


def refs_of(view: JobView) -> tuple[ArtifactRef, ...]:
    return () if view.result is None else view.result.artifact_refs


def copy_artifacts(app: Custodian, view: JobView, out: Path) -> None:
    """Copy what a job kept into a folder, under its own paths."""
    refs = refs_of(view)
    must_be_empty(out)
    for ref in refs:
        # The paths come from hostile code, through the host's own walk; nothing is taken on its word here.
        parts = ref.path.split("/")
        if any(part in {"", ".", ".."} for part in parts):
            raise Tampered(f"the artifact {one_line(ref.path)} has a path that no walk gives")
        with app.artifact(view, ref) as content:
            _copy(content, ref, out.joinpath(*parts))
    if refs:
        click.echo(f"{len(refs)} files copied to {out}", err=True)


def must_be_empty(out: Path) -> None:
    """Names that hostile code chose meet nothing of a person's: no file to replace, no link to follow."""
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise Refusal(
            f"--out {out} must be a new or an empty folder: the files in it get the job's own names."
        )


def _copy(kept: IO[bytes], ref: ArtifactRef, target: Path) -> None:
    digest = hashlib.sha256()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(target, _NEW, 0o600), "wb") as copy:
            while block := kept.read(_BLOCK):
                digest.update(block)
                copy.write(block)
    except FileExistsError:
        raise Refusal(f"{target} is there already: choose another folder with --out.") from None
    except OSError as error:
        raise Refusal(f"{one_line(str(target))} cannot be written: {error.strerror}.") from None
    if digest.hexdigest() != ref.digest:
        target.unlink()
        raise Tampered(f"the kept content of {one_line(ref.path)} is not what the job made.")
