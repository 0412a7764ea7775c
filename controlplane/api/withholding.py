"""Which fields carry texts of models or of evidence, and the marks that stand for them. What is not known to be safe is withheld."""

import hashlib
import types
import typing
from collections.abc import Mapping
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel, JsonValue
from pydantic.fields import FieldInfo

from controlplane.api.bodies import Withheld
from rlm_worker.contracts import JobResult, JobSpec, TraceEvent, canonical
from rlm_worker.contracts.base import Name, Sha256

_UNIONS: tuple[Any, ...] = (typing.Union, types.UnionType)
_PLAIN = (int, float, bool, Decimal, type(None))
#: Texts of contracts that nobody outside the installation writes: names of models, parts and policies.
_SAFE_TEXTS = frozenset(
    {
        "backend",
        "layers",
        "model",
        "models",
        "node",
        "worker_id",
        "versions",
        "spec_digest",
        "labels",
        "allowed_tools",
        "allow",
        "collect",
        "output_schema",
        "by_model",
        "required_layers",
    }
)
#: The name of evidence, and how much of it there is.
_EVIDENCE = frozenset({"name", "kind", "manifest_digest", "files", "size_bytes", "trust"})
#: Of what the control plane proves: ids, digests, kinds, who did it.
_SAFE_PROOFS = frozenset(
    {
        "kind",
        "task_id",
        "tenant_id",
        "step_id",
        "step_kind",
        "job_id",
        "fork_job_id",
        "worker_id",
        "order",
        "status",
        "failure_class",
        "spec_digest",
        "result_digest",
        "answer_digest",
        "event_hash",
        "trace_head",
        "digest",
        "by",
        "what",
    }
)


def mark(value: JsonValue) -> dict[str, Any]:
    """What stands for a value."""
    content = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else canonical(value)
    return Withheld(length_bytes=len(content), sha256=hashlib.sha256(content).hexdigest()).model_dump()


def text(value: str, *, content: bool) -> str | Withheld:
    """A text, or what stands for it; an empty one tells nothing and stays."""
    return value if content or not value else Withheld.model_validate(mark(value))


def spec(given: JobSpec, *, content: bool) -> dict[str, Any]:
    """A spec without places on the server's disk."""
    body = given.model_dump(mode="json")
    body["input_artifacts"] = [
        {name: value for name, value in ref.items() if name in _EVIDENCE} for ref in body["input_artifacts"]
    ]
    body["sandbox_policy"].pop("guest_paths")
    if content:
        return body
    refs = body.pop("input_artifacts")
    return {**veiled(type(given), body), "input_artifacts": refs}


def result(given: JobResult, *, content: bool) -> dict[str, Any]:
    body = given.model_dump(mode="json")
    return body if content else veiled(JobResult, body)


def event(given: Mapping[str, Any], *, content: bool) -> dict[str, Any]:
    """An event of a trace."""
    kind = _events().get(str(given.get("kind")))
    if content:
        return dict(given)
    return {"kind": given.get("kind"), **({} if kind is None else veiled(kind, given))}


def proof(given: Mapping[str, Any], *, content: bool) -> dict[str, Any]:
    """The body of a receipt."""
    return {
        name: value
        if content or name in _SAFE_PROOFS or isinstance(value, _PLAIN) or value == ""
        else mark(value)
        for name, value in given.items()
    }


@cache
def _events() -> dict[str, type[BaseModel]]:
    return {str(kind.model_fields["kind"].default): kind for kind in _parts(TraceEvent)}


def veiled(kind: type[BaseModel], body: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON form of a contract value with marks for its texts."""
    return {name: _veiled_field(kind.model_fields.get(name), name, value) for name, value in body.items()}


def _veiled_field(field: FieldInfo | None, name: str, value: Any) -> Any:
    if value is None or value in ("", [], {}):
        return value
    if field is None:
        return mark(value)
    if name in _SAFE_TEXTS or _is_safe(field.annotation, tuple(field.metadata)):
        return value
    inner = _contract_in(field.annotation, value)
    if inner is None:
        return mark(value)
    if isinstance(value, list):
        return [veiled(inner, item) for item in value]
    return veiled(inner, value)


def _is_safe(annotation: Any, metadata: tuple[Any, ...] = ()) -> bool:
    """Numbers, closed sets of words, digests and names."""
    origin: object = get_origin(annotation)
    if origin is Annotated:
        return _is_safe(get_args(annotation)[0], tuple(annotation.__metadata__))
    if origin is Literal:
        return True
    if origin in _UNIONS:
        return all(_is_safe(part) for part in get_args(annotation))
    if annotation is str:
        return metadata in (_metadata(Sha256), _metadata(Name)) and bool(metadata)
    return annotation in _PLAIN


@cache
def _metadata(kind: Any) -> tuple[Any, ...]:
    """How a field of this kind is bound, as pydantic keeps it."""
    return tuple(FieldInfo.from_annotation(kind).metadata)


def _contract_in(annotation: Any, value: Any) -> type[BaseModel] | None:
    """The contract of a nested value: the one that its `kind` names, where there are several."""
    found = [part for part in _parts(annotation) if isinstance(part, type) and issubclass(part, BaseModel)]
    if len(found) > 1 and isinstance(value, dict):
        found = [part for part in found if part.model_fields["kind"].default == value.get("kind")]
    is_fitting = isinstance(value, dict) or (
        isinstance(value, list) and all(isinstance(item, dict) for item in value)
    )
    return found[0] if len(found) == 1 and is_fitting else None


def _parts(annotation: Any) -> list[Any]:
    inner = get_args(annotation)
    if not inner or get_origin(annotation) is Literal:
        return [annotation]
    if get_origin(annotation) is Annotated:
        return _parts(inner[0])
    if get_origin(annotation) is dict:
        return []
    return [found for part in inner for found in _parts(part)]
