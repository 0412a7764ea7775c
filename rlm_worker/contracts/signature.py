"""Typed signatures: `"line, n: int -> severity: Literal['low','high'], why: str"` to JSON Schema and back to nothing else."""

import ast
import io
import json
import keyword
import tokenize
from typing import Self

from pydantic import JsonValue

from rlm_worker.contracts.base import Contract, JsonObject

_SCALARS: dict[str, JsonObject] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "None": {"type": "null"},
    "date": {"type": "string", "format": "date"},
    "datetime": {"type": "string", "format": "date-time"},
    "Decimal": {"type": "string", "format": "decimal", "pattern": r"^[+-]?\d+(\.\d+)?$"},
    "Citation": {"type": "string", "format": "citation"},
    "dict": {"type": "object"},
    "list": {"type": "array"},
    "tuple": {"type": "array"},
    "Any": {},
    "object": {},
}
#: Inputs whose bytes are sent along.
_MEDIA: dict[str, JsonObject] = {
    "Image": {"type": "object", "format": "image"},
    "Pdf": {"type": "object", "format": "pdf"},
}
_OFFERED = (
    "str, int, float, bool, date, datetime, Decimal, Citation, Any, list[T], tuple[T, U], tuple[T, ...], "
    "dict[K, T], Optional[T], T | U, Literal[...]"
)
#: JSON has strings for keys: what of them can be checked.
_KEYS: dict[str, JsonObject] = {
    "str": {},
    "int": {"propertyNames": {"pattern": r"^-?\d+$"}},
    "date": {"propertyNames": {"type": "string", "format": "date"}},
}
#: Modules whose types people write with a dot.
_MODULES = frozenset({"typing", "datetime", "decimal", "t", "dt"})
_MAX_FIELDS = 64


class SignatureError(ValueError):
    """The signature cannot be read; the message says where and what would be right."""


class Signature(Contract):
    """Input names and the JSON Schema of the outputs."""

    inputs: tuple[str, ...]
    input_schema: JsonObject
    output_schema: JsonObject

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `inputs -> outputs`; a field without a type is a string."""
        left, arrow, right = text.partition("->")
        if not arrow:
            raise SignatureError(f"signature {text!r} has no '->': write it as 'input, … -> field: type, …'")
        inputs = _fields(left, where="inputs")
        return cls(inputs=tuple(inputs), input_schema=_object(inputs), output_schema=fields_schema(right))


def fields_schema(text: str) -> JsonObject:
    """JSON Schema of an object with the fields `name: type, …`, all required."""
    fields = _fields(text, where="outputs")
    if not fields:
        raise SignatureError("no output fields: name at least one, as in 'answer: str'")
    return _object(fields)


def _object(fields: dict[str, JsonObject]) -> JsonObject:
    properties: dict[str, JsonValue] = dict(fields)
    return {
        "type": "object",
        "properties": properties,
        "required": list(fields),
        "additionalProperties": False,
    }


def _fields(text: str, *, where: str) -> dict[str, JsonObject]:
    said = " ".join(text.split())
    arguments, remarks = _arguments(text, where=where)
    if (
        arguments.vararg
        or arguments.kwarg
        or arguments.kwonlyargs
        or arguments.posonlyargs
        or arguments.defaults
    ):
        raise SignatureError(f"the {where} {said!r} may hold names and types only: no stars, no defaults")
    names = [argument.arg for argument in arguments.args]
    if len(names) > _MAX_FIELDS:
        raise SignatureError(f"{len(names)} {where} are too many: at most {_MAX_FIELDS}")
    if len(names) != len(set(names)):
        raise SignatureError(f"the {where} {said!r} name a field twice: every name once")
    try:
        return {
            argument.arg: _field(argument, remarks, is_input=where == "inputs") for argument in arguments.args
        }
    except (RecursionError, MemoryError) as error:
        raise SignatureError(f"the {where} are nested too deeply: use simpler types") from error


def _arguments(text: str, *, where: str) -> tuple[ast.arguments, dict[str, str]]:
    """The fields as Python reads parameters, which have the same form, and the remarks beside them; nothing is run."""
    source = f"def _(\n{text.strip()}\n): pass"
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        body = []
    match body:
        case [ast.FunctionDef(returns=None, body=[ast.Pass()]) as function]:
            return function.args, _remarks(source, function.args)
        case _:
            said = " ".join(text.split())
            raise SignatureError(f"cannot read the {where} {said!r}: expected 'name: type, …'")


def _remarks(source: str, arguments: ast.arguments) -> dict[str, str]:
    """What stands after `#` at the end of a line, said of the last field on that line."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    said = {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}
    last = {argument.end_lineno or 0: argument.arg for argument in arguments.args}
    return {name: said[line].lstrip("#").strip() for line, name in last.items() if line in said}


def _field(argument: ast.arg, remarks: dict[str, str], *, is_input: bool) -> JsonObject:
    if argument.arg.startswith("_") or keyword.iskeyword(argument.arg):
        raise SignatureError(f"{argument.arg!r} cannot be a field name: start with a letter")
    about = remarks.get(argument.arg)
    match argument.annotation and _Undotted().visit(argument.annotation):
        case None:
            schema: JsonObject = {"type": "string"}
        case ast.Name(id=name) if is_input and name in _MEDIA:
            schema = dict(_MEDIA[name])
        case annotation:
            schema = _type(annotation)
    return {**schema, "description": about} if about else schema


class _Undotted(ast.NodeTransformer):
    """`typing.Optional[datetime.date]` means what `Optional[date]` does."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        is_known = isinstance(node.value, ast.Name) and node.value.id in _MODULES
        return ast.Name(node.attr) if is_known else node


def _type(node: ast.expr) -> JsonObject:
    match node:
        case ast.Name(id=name) if name in _SCALARS:
            return dict(_SCALARS[name])
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Constant(value=str(text)):
            return _type(_quoted(text))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _union([left, right])
        case ast.Subscript(value=ast.Name(id=generic), slice=inner):
            return _generic(generic, inner)
        case _:
            raise SignatureError(f"unknown type {ast.unparse(node)!r}: use {_OFFERED}")


def _quoted(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise SignatureError(f"unknown type {text!r}: use {_OFFERED}") from error


def _generic(name: str, inner: ast.expr) -> JsonObject:  # noqa: PLR0911 - a table
    items = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
    match name, items:
        case "Annotated", [item, ast.Constant(value=str(about)), *_]:
            return {**_type(item), "description": about}
        case (("list" | "List" | "Sequence"), [item]):
            return {"type": "array", "items": _type(item)}
        case (("dict" | "Dict"), [key, value]):
            return {"type": "object", **_keys(key), "additionalProperties": _type(value)}
        case (("tuple" | "Tuple"), [item, ast.Constant(value=last)]) if last is ...:
            return {"type": "array", "items": _type(item)}
        case (("tuple" | "Tuple"), [_, *_]):
            return _fixed(items)
        case "Optional", [item]:
            return _union([item, ast.Constant(value=None)])
        case "Union", [_, *_]:
            return _union(items)
        case "Literal", [_, *_]:
            return {"enum": [_literal(item) for item in items]}
        case _:
            raise SignatureError(f"unknown type {name}[{ast.unparse(inner)}]: use {_OFFERED}")


def _fixed(items: list[ast.expr]) -> JsonObject:
    count = len(items)
    parts: list[JsonValue] = [_type(item) for item in items]
    return {"type": "array", "prefixItems": parts, "minItems": count, "maxItems": count, "items": False}


def _keys(node: ast.expr) -> JsonObject:
    match node:
        case ast.Name(id=name) if name in _KEYS:
            return dict(_KEYS[name])
        case ast.Subscript(value=ast.Name(id="Literal")):
            return {"propertyNames": _type(node)}
        case _:
            raise SignatureError(
                f"unknown key type {ast.unparse(node)!r}: use str, int, date or Literal[...]"
            )


def _union(items: list[ast.expr]) -> JsonObject:
    return {"anyOf": [_type(item) for item in items]}


def _literal(node: ast.expr) -> JsonValue:
    try:
        value: JsonValue = ast.literal_eval(node)
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, SyntaxError, TypeError):
        value = []
    if isinstance(value, list | dict | tuple):
        raise SignatureError(
            f"Literal[...] takes strings, numbers, True, False and None, not {ast.unparse(node)!r}"
        )
    return value
