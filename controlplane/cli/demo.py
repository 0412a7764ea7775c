"""`custody demo`: a real question over real evidence that is on every machine, with no key and no service."""

import contextlib
import platform
import shutil
import sysconfig
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from controlplane.adapters.private_files import make_folder
from controlplane.cli.flags import Where, home_flag, json_flag, quiet_flag
from controlplane.cli.home import settings_of
from controlplane.cli.inputs import Typed
from controlplane.cli.run import prepared, submit_and_work
from controlplane.cli.working import Manner

QUESTION = (
    "Which comments in the Python standard library admit a bug, a hack, a workaround or a missing piece?"
)

#: Folders below the library that are not its source.
_OTHERS = ("site-packages", "dist-packages", "__pycache__")
_SIZES = {"default": "embedded", "small": "embedded:qwen2.5-coder-0.5b", "tiny": "embedded:smollm2-135m"}


@click.command()
@click.option(
    "--model-size",
    type=click.Choice(list(_SIZES)),
    default="default",
    show_default=True,
    envvar="CUSTODY_DEMO_MODEL_SIZE",
    help="default: 1.1 GB, right on most labels; small: 0.5 GB; tiny: 0.1 GB, shows the machinery only.",
)
@click.option("--sub-model", metavar="NAME", help="Another model for predict(), instead of an embedded one.")
@click.option("--budget", "-b", multiple=True, metavar="DIM=N,…", help="As in 'custody run'.")
@click.option("--param", "params", multiple=True, metavar="K=V", help="A parameter of the playbook.")
@json_flag
@quiet_flag
@home_flag
def demo(
    *,
    model_size: str,
    sub_model: str | None,
    budget: tuple[str, ...],
    params: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    home: str | None,
) -> int:
    """Audit the comments of the Python standard library that runs this.

    No key, no service, no setup: the embedded model is pulled once, the playbook audit_comments writes the cells.
    """
    manner = Manner(as_json=as_json, quiet=quiet)
    typed = Typed(
        question=QUESTION,
        evidence=(str(standard_library()),),
        playbook="audit_comments",
        params=params,
        sub_model=sub_model or _SIZES[model_size],
        budget=budget,
        labels=("demo=true",),
    )
    resolved = prepared(typed, where=Where(home=home), silent=as_json or quiet)
    sources = source_tree(standard_library(), keep_in=settings_of(home).home / "demo")
    code = submit_and_work(replace(resolved, sources=(sources,)), where=Where(home=home), manner=manner)
    if not as_json and not quiet:
        click.echo(_NEXT)
    return code


def standard_library() -> Path:
    """The source of the standard library that runs this."""
    return Path(sysconfig.get_path("stdlib"))


def source_tree(library: Path, *, keep_in: Path) -> Path:
    """The library itself; where packages of others lie below it, a copy of its sources without them, made once."""
    if not any((library / name).is_dir() for name in ("site-packages", "dist-packages")):
        return library
    copy = keep_in / f"{library.name}-{platform.python_version()}" / library.name
    if copy.is_dir():
        return copy
    make_folder(copy.parent)
    with tempfile.TemporaryDirectory(dir=copy.parent) as draft:
        shutil.copytree(library, Path(draft) / library.name, ignore=_not_source)
        with contextlib.suppress(OSError):  # another demo of this home was faster: its copy is as good
            (Path(draft) / library.name).rename(copy)
    return copy


def _not_source(folder: str, names: list[str]) -> set[str]:
    def is_source(name: str) -> bool:
        place = Path(folder, name)
        if place.is_symlink():
            return False
        return name not in _OTHERS if place.is_dir() else place.suffix == ".py"

    return {name for name in names if not is_source(name)}


_NEXT = """
Now with evidence of your own:
  custody playbooks                                                       what ships
  custody run "What went wrong last night?" -e LOGS --playbook log_triage    no key needed
  custody run "Which parts of this code …?" -e SRC --model openai:gpt-5.5    a model writes the cells"""
