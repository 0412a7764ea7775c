"""Documents to text forms, each in a sandbox of its own: a hostile document meets no other, no network and no file of ours."""

import asyncio
import importlib.util
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field, ValidationError

import sandbox
from rlm_worker.contracts.base import Contract, Count, Positive

How = Literal["html", "docx", "xlsx", "pdf", "parquet", "gzip", "bzip2", "xz", "utf-16", "utf-32"]
MAX_TEXT_BYTES = 64 << 20
_SECONDS = 120.0
_MEMORY = 768 << 20
_AT_ONCE = 2
#: What a conversion needs that the standard library lacks: a package, mounted for it alone.
_LIBRARIES: dict[str, str] = {"pdf": "pypdf", "parquet": "pyarrow"}
_EXTRAS = {"pyarrow": "pip install 'custody[parquet]'", "pypdf": "pip install pypdf"}

#: Told of each document as it is done: its number in the order of the orders.
OnDone = Callable[[int], None]
OpenSession = Callable[[sandbox.Policy], Awaitable[sandbox.Session]]


@dataclass(frozen=True, kw_only=True)
class Order:
    """A document, and how it becomes text."""

    source: Path
    #: One of How.
    how: str


class Facts(Contract):
    """What a conversion says of its text form. It comes out of the sandbox, so it is believed only as far as it fits."""

    pages: tuple[Positive, ...] = Field(default=(), max_length=100_000)
    sheets: tuple[str, ...] = Field(default=(), max_length=10_000)
    rows: Count | None = None
    note: str = Field(default="", max_length=1_000)


@dataclass(frozen=True, kw_only=True)
class Form:
    """A text form on the host, or why there is none."""

    file: Path | None = None
    facts: Facts = field(default_factory=Facts)
    error: str = ""


def convert_all(
    orders: Sequence[Order],
    into: Path,
    *,
    libraries: Path,
    backend: Literal["namespaces", "docker"] = "namespaces",
    runtime: Literal["runc", "runsc"] = "runc",
    on_done: OnDone = lambda _number: None,
) -> list[Form]:
    """Convert documents, in their order. A document that cannot be converted has an error; nothing is raised for it."""
    maker = _Maker(into, libraries=libraries, backend=backend, runtime=runtime)
    return asyncio.run(maker.convert_all(orders, on_done))


class _Maker:
    def __init__(
        self,
        into: Path,
        *,
        libraries: Path,
        backend: Literal["namespaces", "docker"],
        runtime: Literal["runc", "runsc"],
        open_session: OpenSession = sandbox.open_session,
    ) -> None:
        self._into = into
        self._libraries = libraries
        self._backend: Literal["namespaces", "docker"] = backend
        self._runtime: Literal["runc", "runsc"] = runtime
        self._open_session = open_session
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def convert_all(
        self, orders: Sequence[Order], on_done: OnDone = lambda _number: None
    ) -> list[Form]:
        async def one(number: int, order: Order) -> Form:
            form = await self._convert(order)
            on_done(number)
            return form

        return list(await asyncio.gather(*(one(number, order) for number, order in enumerate(orders))))

    async def _convert(self, order: Order) -> Form:
        if order.how not in get_args(How):
            return Form(error=f"not converted: nobody knows how {order.how!r} becomes text")
        async with self._slots:
            try:
                paths = await asyncio.to_thread(self._library_paths, order.how)
                return await self._in_sandbox(order, guest_paths=paths)
            except (sandbox.SandboxError, OSError, _NoLibrary) as error:
                return Form(error=f"not converted: {error}"[:900])

    async def _in_sandbox(self, order: Order, *, guest_paths: tuple[str, ...]) -> Form:
        policy = sandbox.Policy(
            backend=self._backend,
            runtime=self._runtime,
            evidence=(sandbox.Mount(source=str(order.source), target="document"),),
            limits=sandbox.Limits(
                memory_bytes=_MEMORY, processes=8, workspace_bytes=MAX_TEXT_BYTES * 5, tmp_bytes=1 << 20
            ),
            artifacts=sandbox.ArtifactLimits(
                files=2, total_bytes=MAX_TEXT_BYTES * 5, file_bytes=MAX_TEXT_BYTES * 5, depth=1
            ),
            guest_paths=guest_paths,
        )
        session = await self._open_session(policy)
        try:
            ended = await _run(session, order.how)
            if ended.outcome != "ok":
                return Form(error=_why(ended))
            return await self._collected(session)
        finally:
            await session.close()

    async def _collected(self, session: sandbox.Session) -> Form:
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self._into))
        made = {item.path: item.file for item in (await session.artifacts(folder)).artifacts}
        if set(made) != {"text", "facts.json"}:
            return Form(error="not converted: the conversion left no text form")
        return await asyncio.to_thread(_checked, made["text"], made["facts.json"])

    def _library_paths(self, how: str) -> tuple[str, ...]:
        """A folder with the one package that a conversion needs, and no other of this installation."""
        name = _LIBRARIES.get(how)
        if name is None:
            return ()
        found = importlib.util.find_spec(name)
        if found is None or not found.submodule_search_locations:
            raise _NoLibrary(f"{name} is not installed: {_EXTRAS[name]}")
        package = Path(found.submodule_search_locations[0])
        if how == "parquet":
            return (str(package.parent),)  # it is large, and its parts find each other by their places
        return (str(_own_copy(package, self._libraries)),)


class _NoLibrary(Exception):
    """What the conversion needs is not installed."""


def _own_copy(package: Path, libraries: Path) -> Path:
    """A copy of a package in a folder of its own, made once for each version of its files."""
    stamp = package.stat().st_mtime_ns
    folder = libraries / f"{package.name}-{stamp}"
    if not folder.is_dir():
        libraries.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=libraries))
        shutil.copytree(package, draft / package.name, ignore=shutil.ignore_patterns("__pycache__"))
        draft.chmod(0o755)
        try:
            draft.rename(folder)
        except OSError:  # another process was faster: its copy is as good
            shutil.rmtree(draft, ignore_errors=True)
    return folder


async def _run(session: sandbox.Session, how: str) -> sandbox.Finished:
    code = (
        "from sandbox.guest.conversion.start import convert\n"
        f"convert({how!r}, source='/evidence/document', folder='/workspace', max_bytes={MAX_TEXT_BYTES})\n"
    )
    async for event in session.execute(code, deadline_seconds=_SECONDS, name="conversion"):
        if isinstance(event, sandbox.Finished):
            return event
    raise AssertionError("a cell ends with Finished")


def _why(ended: sandbox.Finished) -> str:
    if ended.error is not None:
        return f"not converted: {ended.error.type}: {' '.join(ended.error.message.split())}"[:900]
    limit = f" at its {ended.limit} limit" if ended.limit else ""
    return f"not converted: the conversion was ended{limit} ({ended.outcome})"


def _checked(text: Path, facts: Path) -> Form:
    """The text form, if it is text and its pages lie in it."""
    try:
        known = Facts.model_validate_json(facts.read_bytes())
        lines = 0
        with text.open(encoding="utf-8", newline="\n") as opened:
            for _ in opened:
                lines += 1
    except (ValidationError, UnicodeDecodeError, OSError, ValueError):
        return Form(error="not converted: the conversion left something else than a text form")
    if list(known.pages) != sorted(known.pages) or any(first > max(1, lines) for first in known.pages):
        return Form(error="not converted: the conversion named pages that are not there")
    if known.rows is not None and known.rows != lines:
        return Form(error="not converted: the conversion named rows that are not there")
    return Form(file=text, facts=known)
