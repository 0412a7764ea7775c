"""Pages of PDFs cut out for models that take PDFs: in a sandbox of its own, because the document may be hostile."""

import asyncio
import importlib.util
import tempfile
from collections.abc import Sequence
from pathlib import Path

import sandbox
from rlm_worker.contracts.job import SandboxPolicy
from rlm_worker.media import MOST_BYTES
from rlm_worker.workbench import Workbench

_SECONDS = 120.0
_MEMORY = 768 << 20
#: Pages of one document that are cut in one sandbox.
_AT_ONCE = 32
_MAGIC = b"%PDF-"


class NotCut(Exception):
    """A page that could not be cut out; says why."""


async def cut_pages(bench: Workbench, document: Path, numbers: Sequence[int]) -> dict[int, bytes | NotCut]:
    """Each page as a PDF of one page, or why there is none. A document that breaks its sandbox costs its own pages only."""
    wanted = sorted(set(numbers))
    found: dict[int, bytes | NotCut] = {}
    for start in range(0, len(wanted), _AT_ONCE):
        group = wanted[start : start + _AT_ONCE]
        try:
            found |= await _cut(bench, document, group)
        except (sandbox.SandboxError, OSError, NotCut) as error:
            found |= dict.fromkeys(group, NotCut(" ".join(str(error).split())[:500]))
    return found


async def _cut(bench: Workbench, document: Path, numbers: Sequence[int]) -> dict[int, bytes | NotCut]:
    session = await bench.open(_policy(bench.spec.sandbox_policy, document, pages=len(numbers)))
    try:
        ended = await _run(session, numbers)
        if ended.outcome != "ok":
            raise NotCut(_why(ended))
        with tempfile.TemporaryDirectory() as folder:
            collected = await session.artifacts(Path(folder))
            return await asyncio.to_thread(
                _read, {item.path: item.file for item in collected.artifacts}, numbers
            )
    finally:
        bench.sessions.discard(session)
        await session.close()


def _policy(wanted: SandboxPolicy, document: Path, *, pages: int) -> sandbox.Policy:
    """As strong as the job's own sandbox, with the document and the one library in it and nothing else."""
    found = importlib.util.find_spec("pypdf")
    if found is None or not found.submodule_search_locations:
        raise NotCut("pypdf is not installed on this worker: pip install pypdf")
    if wanted.backend == "landlock":
        raise NotCut("the landlock sandbox runs strict cells only, and no library that cuts pages")
    return sandbox.Policy(
        backend=wanted.backend,
        runtime=wanted.runtime,
        required_layers=None if wanted.required_layers is None else frozenset(wanted.required_layers),
        evidence=(
            sandbox.Mount(source=str(document), target="document"),
            sandbox.Mount(source=found.submodule_search_locations[0], target="library/pypdf"),
        ),
        limits=sandbox.Limits(
            memory_bytes=_MEMORY, processes=8, workspace_bytes=MOST_BYTES * pages * 2, tmp_bytes=1 << 20
        ),
        artifacts=sandbox.ArtifactLimits(
            files=pages, total_bytes=MOST_BYTES * pages, file_bytes=MOST_BYTES, depth=1
        ),
    )


async def _run(session: sandbox.Session, numbers: Sequence[int]) -> sandbox.Finished:
    code = (
        "import sys\nsys.path.insert(0, '/evidence/library')\n"
        "from sandbox.guest.conversion.pdf_pages import cut\n"
        f"cut({list(numbers)!r}, source='/evidence/document', folder='/workspace')\n"
    )
    async for event in session.execute(code, deadline_seconds=_SECONDS, name="cutting"):
        if isinstance(event, sandbox.Finished):
            return event
    raise AssertionError("a cell ends with Finished")


def _why(ended: sandbox.Finished) -> str:
    if ended.error is not None:
        return f"{ended.error.type}: {ended.error.message}"
    limit = f" at its {ended.limit} limit" if ended.limit else ""
    return f"cutting was ended{limit} ({ended.outcome})"


def _read(files: dict[str, Path], numbers: Sequence[int]) -> dict[int, bytes | NotCut]:
    """What came out of the sandbox, believed only as far as it looks like a PDF."""
    found: dict[int, bytes | NotCut] = {}
    for number in numbers:
        page, error = files.get(f"{number}.pdf"), files.get(f"{number}.error")
        data = b"" if page is None else page.read_bytes()
        if data.startswith(_MAGIC):
            found[number] = data
        elif error is not None:
            found[number] = NotCut(" ".join(error.read_text(errors="replace").split()))
        else:
            found[number] = NotCut(f"alone it is no PDF of at most {MOST_BYTES:,} bytes")
    return found
