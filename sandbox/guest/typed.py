"""Types of a cell to JSON Schema and back: classes and annotations one way, answers the other. Asks nobody anything."""

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Literal, Union, cast

from sandbox.guest.described import Schema, about_annotation, about_class, about_fields, described

_SCALARS: dict[object, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    None: {"type": "null"},
    date: {"type": "string", "format": "date"},
    datetime: {"type": "string", "format": "date-time"},
    Decimal: {"type": "string", "format": "decimal", "pattern": r"^[+-]?\d+(\.\d+)?$"},
    dict: {"type": "object"},
    list: {"type": "array"},
    tuple: {"type": "array"},
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
        schema = cast("Schema", annotation.model_json_schema())
        return schema if depth == 0 else inlined(schema)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return described({"enum": list(_members(annotation))}, about_class(annotation))
    if is_record(annotation):
        return _record_schema(cast("type", annotation), names=names, depth=depth)
    return _generic_schema(annotation, lambda inner: schema_of(inner, names=names, depth=depth + 1))


def inlined(schema: Schema) -> Schema:
    """The schema with its definitions written out, so that it can stand inside another."""
    definitions = schema.get("$defs", {})

    def written(part: Any, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise TypeNotSupported("the type is nested too deeply: it may not contain itself")
        if isinstance(part, list):
            return [written(item, depth) for item in part]
        if not isinstance(part, dict):
            return part
        if isinstance(part.get("$ref"), str):
            target = definitions.get(part["$ref"].rpartition("/")[2], {})
            return written({**target, **{k: v for k, v in part.items() if k != "$ref"}}, depth + 1)
        return {key: written(item, depth + 1) for key, item in part.items() if key != "$defs"}

    return cast("Schema", written(schema, 0))


def _members(cls: type[enum.Enum]) -> dict[Any, enum.Enum]:
    """How each member is spelled in JSON: by its value, or by its name where a value has no spelling."""
    values = [member.value for member in cls]
    if all(isinstance(value, str | int | float) for value in values):
        return dict(zip(values, cls, strict=True))
    return {member.name: member for member in cls}


def is_record(annotation: object) -> bool:
    """Whether it is a class with named, typed fields."""
    return isinstance(annotation, type) and (
        dataclasses.is_dataclass(annotation) or typing.is_typeddict(annotation)
    )


def _record_schema(cls: type, *, names: Mapping[str, Any] | None, depth: int) -> Schema:
    hints = typing.get_type_hints(cls, localns=dict(names or {}), include_extras=True)
    said = about_fields(cls)
    fields = {
        name: described(schema_of(hint, names=names, depth=depth + 1), said.get(name, ""))
        for name, hint in hints.items()
    }
    if not fields:
        raise TypeNotSupported(f"{cls.__name__} has no annotated fields: write 'name: type' lines in it")
    optional = _optional_fields(cls)
    schema = {
        "type": "object",
        "properties": fields,
        "required": [name for name in fields if name not in optional],
        "additionalProperties": False,
    }
    return described(schema, about_class(cls))


def _optional_fields(cls: type) -> frozenset[str]:
    if dataclasses.is_dataclass(cls):
        missing = dataclasses.MISSING
        defaulted = (
            f for f in dataclasses.fields(cls) if (f.default, f.default_factory) != (missing, missing)
        )
        return frozenset(f.name for f in defaulted)
    return cast("frozenset[str]", getattr(cls, "__optional_keys__", frozenset()))


def _generic_schema(  # noqa: PLR0911 - a table
    annotation: object, schema: Callable[[object], Schema]
) -> Schema:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema(choice) for choice in inner]}
    if origin is tuple and inner and inner[-1] is not ...:
        return _fixed([schema(item) for item in inner])
    if origin in (list, set, frozenset, tuple):
        return {"type": "array", "items": schema(inner[0])} if inner else {"type": "array"}
    if origin is dict:
        return {"type": "object", **_keys(schema(inner[0])), "additionalProperties": schema(inner[1])}
    if origin is typing.Annotated:
        return described(schema(inner[0]), about_annotation(annotation))
    if origin in (typing.Required, typing.NotRequired):
        return schema(inner[0])
    raise TypeNotSupported(
        f"{annotation!r} cannot be a field's type: use str, int, float, bool, date, datetime, Literal, Enum, "
        "list[T], tuple[T, ...], dict[K, T], Decimal, Optional[T], a dataclass, a TypedDict or a pydantic model"
    )


def _fixed(items: list[Schema]) -> Schema:
    count = len(items)
    return {"type": "array", "prefixItems": items, "minItems": count, "maxItems": count, "items": False}


def _keys(schema: Schema) -> Schema:
    """What JSON can check of the keys of a dict, which are always strings there."""
    if schema == {"type": "string"}:
        return {}
    if schema.get("type") == "integer":
        return {"propertyNames": {"pattern": r"^-?\d+$"}}
    if "enum" in schema or schema.get("format") in ("date", "date-time"):
        return {"propertyNames": schema}
    raise TypeNotSupported("the keys of a dict are str, int, date, Literal or an Enum")


def revive(value: Any, schema: Schema) -> Any:
    """The value with real dates, decimals, numbers, tuples and keys where its schema says so; what is none stays."""
    if isinstance(value, str):
        return _real(value, schema)
    if isinstance(value, int | float):
        return _number(value, schema)
    if isinstance(value, dict):
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties", {})
        rest, keys = rest if isinstance(rest, dict) else {}, schema.get("propertyNames", {})
        return {_key(key, keys): revive(item, properties.get(key, rest)) for key, item in value.items()}
    if isinstance(value, list):
        if "prefixItems" in schema:
            return tuple(revive(item, part) for item, part in zip(value, schema["prefixItems"], strict=False))
        items = schema.get("items", {})
        return [revive(item, items if isinstance(items, dict) else {}) for item in value]
    return value


def _key(text: str, schema: Schema) -> Any:
    return int(text) if schema.get("pattern") == r"^-?\d+$" else _real(text, schema)


def _number(value: float, schema: Schema) -> Any:
    """JSON has one kind of number: 3 may be meant as a float, and 3.0 counts as an integer."""
    kinds = {choice.get("type") for choice in (schema, *schema.get("anyOf", ()))}
    if isinstance(value, bool) or {"integer", "number"} <= kinds:
        return value
    if "number" in kinds:
        return _as_float(value)
    return int(value) if "integer" in kinds and value == value // 1 else value


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return value


def _real(text: str, schema: Schema) -> Any:
    formats = {choice.get("format") for choice in (schema, *schema.get("anyOf", ()))}
    try:
        if "date" in formats:
            return date.fromisoformat(text)
        if "date-time" in formats:
            return datetime.fromisoformat(text)
        if "decimal" in formats:
            return Decimal(text)
    except (ValueError, InvalidOperation):
        return text
    return text


def build(  # noqa: PLR0911 - a table
    annotation: Any, value: Any, *, names: Mapping[str, Any] | None = None
) -> Any:
    """An instance of a class (or of what an annotation says) from an answer that fits its schema."""
    if hasattr(annotation, "model_validate"):
        return annotation.model_validate(value)
    if is_record(annotation) and isinstance(value, dict):
        hints = typing.get_type_hints(annotation, localns=dict(names or {}))
        return annotation(**{k: build(hints.get(k, Any), v, names=names) for k, v in value.items()})
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _members(annotation)[value]
    if annotation in (date, datetime) and isinstance(value, str):
        return annotation.fromisoformat(value)
    if annotation is Decimal and isinstance(value, str):
        return Decimal(value)
    if annotation in (int, float) and isinstance(value, int | float):
        return _number(value, _SCALARS[annotation])
    return _build_generic(annotation, value, lambda inner, item: build(inner, item, names=names))


def _build_generic(annotation: Any, value: Any, each: Callable[[Any, Any], Any]) -> Any:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple and inner and inner[-1] is not ... and isinstance(value, list):
        return tuple(each(kind, item) for kind, item in zip(inner, value, strict=True))
    if origin in (list, set, frozenset, tuple) and inner and isinstance(value, list):
        return origin(each(inner[0], item) for item in value)
    if origin is dict and isinstance(value, dict):
        keys = {key: int(key) if inner[0] is int else each(inner[0], key) for key in value}
        return {keys[key]: each(inner[1], item) for key, item in value.items()}
    if origin in (Union, types.UnionType):
        return _first_that_fits(inner, value, each)
    if origin in (typing.Annotated, typing.Required, typing.NotRequired):
        return each(inner[0], value)
    return value


def _first_that_fits(choices: tuple[Any, ...], value: Any, each: Callable[[Any, Any], Any]) -> Any:
    if value is None:
        return None
    for choice in choices:
        if choice in (type(None), None) or not _may_be(choice, value):
            continue
        try:
            return each(choice, value)
        except (TypeError, ValueError):
            continue
    return value


def _may_be(choice: Any, value: Any) -> bool:
    """Whether a value of JSON may be meant as this; of a class or a container its building tells."""
    if choice is float:
        return type(value) in (int, float)
    if choice is int and type(value) is float:
        return value.is_integer()
    return choice not in (str, int, bool) or type(value) is choice
