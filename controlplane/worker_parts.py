"""What the command line needs of the worker and the sandbox: thin functions that import them when called, and plain values.

Beside bootstrap the only module of the control plane that may do so.
"""
# ruff: noqa: PLC0415 - every import of the worker waits until it is needed

import os
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from controlplane.errors import InvalidRequest, NotFound, Tampered, Unavailable

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable, Iterator

    from rlm_worker.contracts import EvidenceRef, JobSpec, JsonObject, TraceRecord
    from rlm_worker.drivers.playbook_format import PlaybookText

    #: Digest of what evidence holds; None when the event was set before there was one.
    Seal = Callable[[EvidenceRef, threading.Event], str | None]

Backend = Literal["namespaces", "docker", "landlock"]
Runtime = Literal["runc", "runsc"]
#: What contains cells, by the names people use.
SANDBOXES: dict[str, tuple[Backend, Runtime]] = {
    "namespaces": ("namespaces", "runc"),
    "docker": ("docker", "runc"),
    "gvisor": ("docker", "runsc"),
    "landlock": ("landlock", "runc"),
}

#: Shows that the machinery works and little else, so nobody gets it without asking for it by name.
_TRIAL = "smollm2-135m"
_KEYS = (
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GOOGLE_API_KEY",
    "GEMINI_API_KEY",
    "MISTRAL_API_KEY",
    "GROQ_API_KEY",
    "CUSTODY_API_KEY",
)


@dataclass(frozen=True, kw_only=True)
class LocalModel:
    """An embedded model, as `custody models list` shows it."""

    name: str
    size_bytes: int
    sha256: str
    licence: str
    good_for: str
    is_default: bool
    is_installed: bool
    is_verified: bool
    partial_bytes: int

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Playbook:
    """A program that drives a job, and what it says about itself."""

    name: str
    title: str
    source: str
    description: str = ""
    #: None: whoever asks says what the answer looks like.
    output_schema: "JsonObject | None" = None
    budget: str = ""
    sub_model: str | None = None
    #: Name: default value and description; None: it takes any.
    params: dict[str, tuple[Any, str]] | None = None
    cells: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class SandboxLayer:
    name: str
    is_active: bool
    note: str


@dataclass(frozen=True, kw_only=True)
class SandboxReport:
    """What contains cells on this machine, and what does not."""

    backend: str
    #: Of containers: what runs them.
    runtime: str
    layers: tuple[SandboxLayer, ...]
    is_usable: bool
    advice: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What came of running a trace again without a model."""

    cells: int
    same: int
    result_same: bool
    #: The first one, in the order of the trace: where, what was recorded, what came of it now.
    divergence: str = ""
    #: Of these cells' REPLs, those of children; and the ids of children that no cell asked again, because theirs was cut off.
    children: int = 0
    children_cut_off: tuple[str, ...] = ()
    #: Names of the evidence whose content is no longer what the job read.
    evidence_changed: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        return self.result_same and not self.divergence and not self.evidence_changed

    def document(self) -> dict[str, Any]:
        return asdict(self)


def sandbox_report(backend: Backend = "namespaces", runtime: Runtime = "runc") -> SandboxReport:
    """Make one sandbox and say which layers it had."""
    from sandbox.probe import probe

    found = probe(backend, runtime)
    return SandboxReport(
        backend=found.backend,
        runtime=found.runtime if backend == "docker" else "",
        layers=tuple(
            SandboxLayer(name=layer.name, is_active=layer.active, note=layer.note) for layer in found.layers
        ),
        is_usable=found.usable,
        advice=found.advice,
    )


def check_policies(*, allow: tuple[str, ...], collect: tuple[str, ...]) -> None:
    """Refuse an address or a pattern of paths that no sandbox would take."""
    import sandbox

    try:
        sandbox.Network(allow=allow)
        sandbox.ArtifactLimits(only=collect)
    except sandbox.PolicyError as error:
        raise InvalidRequest(f"{error}.") from None


def replay(spec: "JobSpec", records: "Iterable[TraceRecord]", *, seal: "Seal | None" = None) -> Replayed:
    """Run a finished job again from its trace, in a new sandbox and without a model."""
    import asyncio

    from rlm_worker.contracts.trace import BrokenChain
    from rlm_worker.job import EvidenceKeeper
    from rlm_worker.replay import verify_replay

    evidence = None if seal is None else EvidenceKeeper(seal=seal, changed=lambda _: False)
    try:
        found = asyncio.run(verify_replay(spec, records, evidence=evidence))
    except BrokenChain as broken:
        raise Tampered(f"the trace was changed, {broken}. It is refused.") from broken
    return Replayed(
        cells=found.cells,
        same=found.same,
        result_same=found.result_same,
        children=found.children,
        children_cut_off=found.children_cut_off,
        evidence_changed=found.evidence_changed,
        divergence="" if found.divergence is None else str(found.divergence),
    )


def provider_keys() -> list[str]:
    """Names of the provider keys that are set; never their values."""
    return [name for name in _KEYS if os.environ.get(name)]


def default_models() -> tuple[str | None, str]:
    """The model that would write cells (None without a key) and the one that would answer predict()."""
    from rlm_worker.models import default_root, default_sub

    return default_root(os.environ), default_sub(os.environ)


def check_model(name: str) -> None:
    """Refuse a model that cannot be used here, without asking it anything."""
    from rlm_worker.models import connect

    if embedded_name(name) is None:
        with _model_errors():
            connect(name, settings=_model_settings())


def embedded_name(name: str) -> str | None:
    """The catalogue name behind `embedded` or `embedded:NAME`; None for every other model and for a file's path."""
    from rlm_worker.models.catalogue import CATALOGUE, DEFAULT

    kind, _, rest = name.partition(":")
    if kind != "embedded":
        return None
    known = {entry.name for entry in CATALOGUE}
    return DEFAULT if not rest else rest if rest in known else None


def local_models() -> list[LocalModel]:
    """The embedded models, largest and best first."""
    from rlm_worker.models.catalogue import DEFAULT
    from rlm_worker.models.shelf import Shelf

    return [
        LocalModel(
            name=stocked.entry.name,
            size_bytes=stocked.entry.size_bytes,
            sha256=stocked.entry.sha256,
            licence=stocked.entry.licence,
            good_for=stocked.entry.good_for,
            is_default=stocked.entry.name == DEFAULT,
            is_installed=stocked.is_installed,
            is_verified=stocked.is_verified,
            partial_bytes=stocked.partial_bytes,
        )
        for stocked in Shelf(_model_settings().cache_dir()).stock()
    ]


def pull_model(
    name: str, *, source_file: Path | None = None, on_progress: Callable[[int, int, str], None]
) -> Path:
    """Get an embedded model onto this machine; Unavailable says what each source answered and what to do instead."""
    from rlm_worker.models.catalogue import find_entry
    from rlm_worker.models.pull import pull
    from rlm_worker.models.shelf import Shelf

    with _model_errors():
        shelf = Shelf(_model_settings().cache_dir())
        return pull(find_entry(name), shelf=shelf, source_file=source_file, on_progress=on_progress)


def remove_model(name: str) -> bool:
    """Remove a model; False when it was not there."""
    from rlm_worker.models.catalogue import find_entry
    from rlm_worker.models.shelf import Shelf

    with _model_errors():
        return Shelf(_model_settings().cache_dir()).remove(find_entry(name))


def smaller_model(name: str) -> str | None:
    """The next model to try when this one cannot be had."""
    from rlm_worker.models.catalogue import find_entry, next_smaller

    with _model_errors():
        smaller = next_smaller(find_entry(name))
    return None if smaller is None else smaller.name


def shipped_playbooks() -> list[Playbook]:
    """The playbooks of this distribution, by name."""
    return [_read_playbook(path) for path in sorted(_shipped_folder().glob("[a-z]*.py"))]


def find_playbook(name_or_path: str) -> Playbook:
    """A shipped playbook by its name, or a person's own by its path."""
    shipped = _shipped_folder() / f"{name_or_path}.py"
    if name_or_path.isidentifier() and shipped.is_file():
        return _read_playbook(shipped)
    path = Path(name_or_path)
    if path.suffix != ".py" and not path.is_file():
        names = ", ".join(path.stem for path in sorted(_shipped_folder().glob("[a-z]*.py")))
        raise NotFound(
            f"there is no playbook {name_or_path!r}. Shipped are: {names}; or give the path of a .py file."
        )
    return _read_playbook(path)


def _shipped_folder() -> Path:
    import rlm_worker

    return Path(rlm_worker.__file__).parent / "playbooks"


def _read_playbook(path: Path) -> Playbook:
    from rlm_worker.drivers.playbook_format import PlaybookError, parse

    try:
        source = path.read_text(encoding="utf-8")
        return _described(parse(source), name=path.stem, source=source)
    except FileNotFoundError:
        raise NotFound(f"there is no playbook file {str(path)!r}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the playbook {str(path)!r} cannot be read: {error}") from None
    except PlaybookError as error:
        raise InvalidRequest(f"the playbook {str(path)!r} is not right, {error}") from None


def _described(text: "PlaybookText", *, name: str, source: str) -> Playbook:
    cells = tuple(cell.title for cell in text.cells)
    meta = text.meta
    if meta is None:
        return Playbook(name=name, title=name, source=source, cells=cells)
    return Playbook(
        name=meta.name,
        title=meta.title,
        description=meta.description,
        source=source,
        output_schema=meta.schema_of_output(),
        budget=meta.budget,
        sub_model=meta.sub_model,
        params={name: (param.default, param.description) for name, param in meta.params.items()},
        cells=cells,
    )


def _model_settings() -> Any:
    from rlm_worker.models import ModelSettings

    return ModelSettings.from_env()


@contextmanager
def _model_errors() -> "Iterator[None]":
    from rlm_worker.models.errors import ModelError, ModelUnavailable

    try:
        yield
    except ModelUnavailable as error:
        raise Unavailable(str(error)) from error
    except ModelError as error:
        raise InvalidRequest(str(error)) from error


def model_to_pull(name: str) -> str | None:
    """The catalogue entry that must be pulled before `name` can be used; None when there is nothing to pull."""
    wanted = embedded_name(name)
    if wanted is None:
        return None
    stock = {model.name: model for model in local_models()}
    if is_any(name) and any(model.is_installed for model in stock.values() if model.name != _TRIAL):
        return None
    return None if stock[wanted].is_installed else wanted


def pinned(name: str) -> str:
    """`embedded` as the name of the very model that answers; any other name as it is."""
    if not is_any(name):
        return name
    here = [model.name for model in local_models() if model.is_installed and model.name != _TRIAL]
    return f"embedded:{here[0]}" if here else name


def is_any(name: str) -> bool:
    """`embedded` alone means: the best one that can be had."""
    return name == "embedded"
