"""From what a person typed to a request the control plane takes; refuses before anything is made."""

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from controlplane import worker_parts
from controlplane.adapters.sources.typed import Source, sources_of
from controlplane.cli.exits import Refusal
from controlplane.cli.parsing import Amount, parse_budget, parse_labels, parse_params
from controlplane.config import Settings
from controlplane.custodian import SERVERS_CHOICE
from controlplane.domain.commands import JobRequest
from controlplane.worker_parts import Playbook
from rlm_worker.contracts import Budget, EvidenceRef, JsonObject
from rlm_worker.contracts.job import (
    ArtifactPolicy,
    ModelDriver,
    NetworkPolicy,
    PlaybookDriver,
    RecordingDriver,
    SandboxPolicy,
)
from rlm_worker.contracts.signature import SignatureError, fields_schema

DEFAULT_OUTPUT = "answer: str, citations: list[Citation]"


@dataclass(frozen=True, kw_only=True)
class Recording:
    """The job whose cells are to run again, live."""

    driver: RecordingDriver
    output_schema: JsonObject
    sub_model: str
    evidence: tuple[EvidenceRef, ...]
    params: JsonObject


@dataclass(frozen=True, kw_only=True)
class Typed:
    """The options of `run`, as typed."""

    question: str
    evidence: tuple[str, ...] = ()
    output: str | None = None
    playbook: str | None = None
    params: tuple[str, ...] = ()
    model: str | None = None
    sub_model: str | None = None
    budget: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    sandbox: str | None = None
    language: str | None = None
    allow_net: tuple[str, ...] = ()
    collect: tuple[str, ...] = ()
    snapshot: bool = False
    recording: Recording | None = None


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A request that is complete but for its evidence, which the App stages."""

    request: JobRequest
    sources: tuple[Source | Path, ...]
    #: Whether evidence that lies on this machine is copied.
    snapshot: bool = False

    def with_evidence(self, refs: tuple[EvidenceRef, ...]) -> JobRequest:
        fields = {**vars(self.request), "input_artifacts": refs or self.request.input_artifacts}
        return JobRequest(**fields)


def resolve(typed: Typed, *, settings: Settings, is_checked: bool = True) -> Resolved:
    """Check everything that can be checked without making anything; models that this machine would ask, too."""
    if not typed.question.strip():
        raise Refusal("the question is empty: say what you want to know, in quotes.")
    worker_parts.check_policies(allow=typed.allow_net, collect=typed.collect)
    sources = evidence_sources(typed.evidence)
    playbook = None if typed.playbook is None else worker_parts.find_playbook(typed.playbook)
    again = typed.recording
    as_before = again is not None and typed.output is None
    schema = again.output_schema if again and as_before else output_schema(typed.output, playbook=playbook)
    budget = merged_budget(parse_budget(typed.budget), playbook=playbook)
    driver, sub_model = _choose(typed, playbook=playbook, settings=settings)
    if is_checked:
        _check_models(driver, sub_model)
    request = JobRequest(
        task=typed.question.strip(),
        output_schema=schema,
        budget=budget,
        driver=driver,
        sub_model=sub_model,
        sandbox_policy=sandbox_policy(typed, settings=settings),
        network_policy=NetworkPolicy(allow=typed.allow_net),
        artifact_policy=ArtifactPolicy(collect=typed.collect),
        input_artifacts=again.evidence if again else (),
        params={**(again.params if again else {}), **_params(typed.params, playbook=playbook)},
        labels=parse_labels(typed.labels),
    )
    if typed.playbook is not None and typed.playbook.isidentifier() and not sources:
        raise Refusal(f"the playbook {typed.playbook} reads evidence: name a file or a folder with -e PATH.")
    return Resolved(request=request, sources=sources, snapshot=typed.snapshot)


def resolve_for_server(typed: Typed) -> Resolved:
    """The same where a server decides what this machine would: which sandbox, and which models when none is named."""
    if typed.sandbox is not None:
        raise Refusal("the server says what contains its cells: leave out --sandbox.")
    if typed.recording is not None:
        raise Refusal("a recording is run again in a home: leave out --server, or use --playbook or --model.")
    named = replace(typed, model=typed.model or (None if typed.playbook else SERVERS_CHOICE))
    named = replace(named, sub_model=typed.sub_model or SERVERS_CHOICE)
    return resolve(named, settings=Settings(), is_checked=False)


def sandbox_policy(typed: Typed, *, settings: Settings) -> SandboxPolicy:
    """What contains the cells, by the name people use; the degraded sandbox takes strict code only, and says so."""
    name = typed.sandbox or settings.sandbox
    if name not in worker_parts.SANDBOXES:
        raise Refusal(f"there is no sandbox {name!r}: there are {', '.join(worker_parts.SANDBOXES)}.")
    backend, runtime = worker_parts.SANDBOXES[name]
    language = typed.language or settings.language or ("strict" if backend == "landlock" else "open")
    if language == "open" and backend == "landlock":
        raise Refusal("the landlock sandbox is degraded and takes strict code only: leave --language out.")
    try:
        return SandboxPolicy.model_validate(
            {
                "backend": backend,
                "runtime": runtime,
                "language": language,
                "cell_seconds": settings.cell_seconds,
            }
        )
    except ValidationError:
        raise Refusal(f"there is no language policy {language!r}: there are open and strict.") from None


def evidence_sources(texts: tuple[str, ...]) -> tuple[Source, ...]:
    """What was given with -e. Nothing is read yet; what cannot be there is refused."""
    found = tuple(source for text in texts for source in sources_of(text))
    for source in found:
        if source.kind == "local":
            evidence_path(source.address)
    if sum(source.kind == "stdin" for source in found) > 1:
        raise Refusal("standard input can be given once: leave one of the '-e -' out.")
    return found


def evidence_path(text: str) -> Path:
    """An existing, readable file or folder."""
    if not text.strip():
        raise Refusal("an evidence source is empty: name a file or a folder; `.` is the one you are in.")
    path = Path(text).expanduser()
    if not path.exists():
        raise Refusal(f"there is no evidence at {text!r}: name a file or a folder that exists.")
    if not path.is_file() and not path.is_dir():
        raise Refusal(f"the evidence {text!r} is neither a file nor a folder.")
    if not os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0)):
        raise Refusal(f"the evidence {text!r} cannot be read: you have no permission to.")
    return path


def output_schema(text: str | None, *, playbook: Playbook | None) -> JsonObject:
    """The schema asked for: fields, a JSON Schema file, else the playbook's, else an answer with citations."""
    if text is None:
        own = None if playbook is None else playbook.output_schema
        return fields_schema(DEFAULT_OUTPUT) if own is None else own
    if text.endswith(".json") or Path(text).is_file():
        return _schema_file(text)
    try:
        return fields_schema(text)
    except SignatureError as error:
        raise Refusal(f"--output: {error}. Write it like 'answer: str, citations: list[Citation]'.") from None


def _schema_file(text: str) -> JsonObject:
    try:
        schema: Any = json.loads(Path(text).read_text(encoding="utf-8"))
    except OSError as error:
        raise Refusal(f"--output {text}: the schema file cannot be read ({error.strerror}).") from None
    except ValueError as error:
        raise Refusal(f"--output {text}: this is not JSON ({error}).") from None
    if not isinstance(schema, dict) or schema.get("type") != "object" or not schema.get("properties"):
        raise Refusal(
            f"--output {text}: the answer must be an object; give a JSON Schema with type object and properties."
        )
    _check_schema(schema, text)
    return schema


def _check_schema(schema: JsonObject, text: str) -> None:
    from controlplane.errors import InvalidRequest  # noqa: PLC0415  # only a schema file needs these
    from controlplane.schemas import checker  # noqa: PLC0415

    try:
        checker(schema)
    except InvalidRequest as error:
        raise Refusal(f"--output {text}: {error}.") from None


def merged_budget(typed: dict[str, Amount], *, playbook: Playbook | None) -> Budget:
    """The budget typed, over the playbook's, over the defaults."""
    fields = typed if playbook is None else {**parse_budget([playbook.budget]), **typed}
    try:
        return Budget.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise Refusal(f"--budget: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from None


def _params(texts: tuple[str, ...], *, playbook: Playbook | None) -> dict[str, Any]:
    typed = parse_params(texts)
    if playbook is None or playbook.params is None:
        return typed
    unknown = [name for name in typed if name not in playbook.params]
    if unknown:
        known = ", ".join(playbook.params) or "none"
        raise Refusal(f"the playbook {playbook.name} has no parameter {unknown[0]!r}; it has: {known}.")
    return {name: default for name, (default, _) in playbook.params.items()} | typed


def _choose(
    typed: Typed, *, playbook: Playbook | None, settings: Settings
) -> tuple[ModelDriver | PlaybookDriver | RecordingDriver, str]:
    if typed.recording is not None:
        if typed.model is not None or playbook is not None:
            raise Refusal("a recording writes the cells: leave out --model and --playbook.")
        chosen = typed.sub_model or typed.recording.sub_model
        return typed.recording.driver, chosen
    root, sub = worker_parts.default_models()
    if playbook is not None:
        if typed.model is not None:
            raise Refusal(
                "--model names who writes the cells, and a playbook already does: "
                "use --sub-model to choose who answers predict()."
            )
        driver: ModelDriver | PlaybookDriver = PlaybookDriver(name=playbook.name, source=playbook.source)
    else:
        root = typed.model or settings.model or root
        if root is None:
            raise Refusal(_no_driver())
        driver = ModelDriver(model=root)
    wanted = playbook.sub_model if playbook is not None else None
    chosen = typed.sub_model or wanted or settings.sub_model or typed.model or sub
    return driver, chosen


def _check_models(driver: ModelDriver | PlaybookDriver | RecordingDriver, sub_model: str) -> None:
    if isinstance(driver, ModelDriver):
        worker_parts.check_model(driver.model)
    worker_parts.check_model(sub_model)


def _no_driver() -> str:
    names = ", ".join(playbook.name for playbook in worker_parts.shipped_playbooks())
    return (
        "nobody is here to write the cells. No provider key is set, and the embedded model can fill types but cannot "
        "write cells. Either set a key (OPENAI_API_KEY, ANTHROPIC_API_KEY, …) or name a model with --model (also "
        f"http://host:port/v1#name), or let a playbook write them: --playbook NAME, shipped are {names}."
    )
