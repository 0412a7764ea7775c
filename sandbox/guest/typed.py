"""Types of a cell to JSON Schema and back: classes and annotations one way, answers the other. Asks nobody anything."""

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, Literal, Union, cast

Schema = dict[str, Any]

_SCALARS: dict[object, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    None: {"type": "null"},
    date: {"type": "string", "format": "date"},
    datetime: {"type": "string", "format": "date-time"},
    dict: {"type": "object"},
    list: {"type": "array"},
    Any: {},
    object: {},
}
_MAX_DEPTH = 16


class TypeNotSupported(TypeError):
    """The type has no JSON Schema here; the message says which are known."""


def schema_of(annotation: object, *, names: Mapping[str, Any] | None = None, depth: int = 0) -> Schema:
    """JSON Schema of an annotation or a class: dataclass, TypedDict, Enum, or anything with model_json_schema()."""
    if depth > _MAX_DEPTH:
        raise TypeNotSupported(f"{annotation!r} is nested too deeply: a type may not contain itself")
    if annotation in _SCALARS:
        return dict(_SCALARS[annotation])
    if isinstance(annotation, type) and hasattr(annotation, "model_json_schema"):
        return cast("Schema", annotation.model_json_schema())
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return {"enum": [member.value for member in annotation]}
    if is_record(annotation):
        return _record_schema(cast("type", annotation), names=names, depth=depth)
    return _generic_schema(annotation, lambda inner: schema_of(inner, names=names, depth=depth + 1))


def is_record(annotation: object) -> bool:
    """Whether it is a class with named, typed fields."""
    return isinstance(annotation, type) and (
        dataclasses.is_dataclass(annotation) or typing.is_typeddict(annotation)
    )


def _record_schema(cls: type, *, names: Mapping[str, Any] | None, depth: int) -> Schema:
    hints = typing.get_type_hints(cls, localns=dict(names or {}))
    fields = {name: schema_of(hint, names=names, depth=depth + 1) for name, hint in hints.items()}
    if not fields:
        raise TypeNotSupported(f"{cls.__name__} has no annotated fields: write 'name: type' lines in it")
    optional = _optional_fields(cls)
    return {
        "type": "object",
        "properties": fields,
        "required": [name for name in fields if name not in optional],
        "additionalProperties": False,
    }


def _optional_fields(cls: type) -> frozenset[str]:
    if dataclasses.is_dataclass(cls):
        missing = dataclasses.MISSING
        defaulted = (
            f for f in dataclasses.fields(cls) if (f.default, f.default_factory) != (missing, missing)
        )
        return frozenset(f.name for f in defaulted)
    return cast("frozenset[str]", getattr(cls, "__optional_keys__", frozenset()))


def _generic_schema(annotation: object, schema: Callable[[object], Schema]) -> Schema:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema(choice) for choice in inner]}
    if origin in (list, set, frozenset, tuple):
        return {"type": "array", "items": schema(inner[0])} if inner else {"type": "array"}
    if origin is dict and inner[0] is str:
        return {"type": "object", "additionalProperties": schema(inner[1])}
    if origin in (typing.Annotated, typing.Required, typing.NotRequired):
        return schema(inner[0])
    raise TypeNotSupported(
        f"{annotation!r} cannot be a field's type: use str, int, float, bool, date, datetime, Literal, Enum, "
        "list[T], dict[str, T], Optional[T], a dataclass, a TypedDict or a pydantic model"
    )


def revive(value: Any, schema: Schema) -> Any:
    """The value with real dates where its schema says date or date-time; the text stays where it is none."""
    if isinstance(value, str):
        return _moment(value, schema)
    if isinstance(value, dict):
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties", {})
        rest = rest if isinstance(rest, dict) else {}
        return {key: revive(item, properties.get(key, rest)) for key, item in value.items()}
    if isinstance(value, list):
        items = schema.get("items", {})
        return [revive(item, items if isinstance(items, dict) else {}) for item in value]
    return value


def _moment(text: str, schema: Schema) -> Any:
    formats = {choice.get("format") for choice in (schema, *schema.get("anyOf", ()))}
    try:
        if "date" in formats:
            return date.fromisoformat(text)
        if "date-time" in formats:
            return datetime.fromisoformat(text)
    except ValueError:
        return text
    return text


def build(annotation: Any, value: Any, *, names: Mapping[str, Any] | None = None) -> Any:
    """An instance of a class (or of what an annotation says) from an answer that fits its schema."""
    if hasattr(annotation, "model_validate"):
        return annotation.model_validate(value)
    if is_record(annotation) and isinstance(value, dict):
        hints = typing.get_type_hints(annotation, localns=dict(names or {}))
        return annotation(**{k: build(hints.get(k, Any), v, names=names) for k, v in value.items()})
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return annotation(value)
    if annotation in (date, datetime) and isinstance(value, str):
        return annotation.fromisoformat(value)
    return _build_generic(annotation, value, lambda inner, item: build(inner, item, names=names))


def _build_generic(annotation: Any, value: Any, each: Callable[[Any, Any], Any]) -> Any:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (list, set, frozenset, tuple) and inner and isinstance(value, list):
        return origin(each(inner[0], item) for item in value)
    if origin is dict and isinstance(value, dict):
        return {key: each(inner[1], item) for key, item in value.items()}
    if origin in (Union, types.UnionType):
        return _first_that_fits(inner, value, each)
    if origin in (typing.Annotated, typing.Required, typing.NotRequired):
        return each(inner[0], value)
    return value


def _first_that_fits(choices: tuple[Any, ...], value: Any, each: Callable[[Any, Any], Any]) -> Any:
    if value is None:
        return None
    for choice in choices:
        if choice in (type(None), None):
            continue
        try:
            return each(choice, value)
        except (TypeError, ValueError):
            continue
    return value
