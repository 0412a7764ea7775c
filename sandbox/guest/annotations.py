"""Reads signature strings: field names, their annotations, the remarks beside them. Looks names up and runs nothing."""

import ast
import io
import tokenize
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Optional, Union

#: Inputs that are not text: their bytes are sent along.
MEDIA = frozenset({"Image", "Pdf"})

_PLAIN: dict[str, Any] = {
    **{kind.__name__: kind for kind in (str, int, float, bool, date, datetime, Decimal, list, dict, tuple)},
    "Citation": str,
    "Any": Any,
    "object": object,
    "None": None,
    "Annotated": None,  # stands before what it is about
}
_GENERICS: dict[str, Any] = {
    "list": list,
    "List": list,
    "set": set,
    "dict": dict,
    "Dict": dict,
    "tuple": tuple,
    "Tuple": tuple,
    "Sequence": list,
    "frozenset": frozenset,
    "Set": set,
    "Optional": Optional,
    "Union": Union,
}
#: What JSON and its schema cannot tell from a list, so that only the cell's side can make it.
_NOT_IN_JSON = frozenset({"set", "Set", "frozenset", "tuple", "Tuple"})
#: Modules whose types people write with a dot.
_MODULES = frozenset({"typing", "datetime", "decimal", "t", "dt"})


@dataclass(frozen=True)
class Field:
    """One field of a signature as it was written."""

    name: str
    annotation: ast.expr | None
    remark: str = ""


def read_fields(text: str, *, signature: str) -> list[Field]:
    """The fields of one side of a signature."""
    source = f"def _(\n{text.strip()}\n): pass"
    try:
        function = ast.parse(source).body[0]
        remarks = _remarks(source)
    except (SyntaxError, ValueError, tokenize.TokenError):
        raise ValueError(
            f"cannot read signature {signature!r}: expected 'name: type, … -> name: type, …'"
        ) from None
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args.args
    last_on_line = {argument.end_lineno: argument.arg for argument in arguments}
    return [
        Field(
            argument.arg,
            argument.annotation and _Undotted().visit(argument.annotation),
            remarks.get(argument.end_lineno or 0, "")
            if last_on_line[argument.end_lineno] == argument.arg
            else "",
        )
        for argument in arguments
    ]


class _Undotted(ast.NodeTransformer):
    """`typing.Optional[datetime.date]` means what `Optional[date]` does."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        is_known = isinstance(node.value, ast.Name) and node.value.id in _MODULES
        return ast.Name(node.attr) if is_known else node


def _remarks(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: token.string.lstrip("#").strip() for token in tokens if token.type == tokenize.COMMENT
    }


def media_of(field: Field) -> str | None:
    """Which medium an input is, if it is one."""
    match field.annotation:
        case ast.Name(id=name) if name in MEDIA:
            return name
        case _:
            return None


def names_a_class(annotation: ast.expr | None, names: Mapping[str, Any]) -> bool:
    """Whether a class of the cell stands in the annotation: then only the cell's side knows what it means."""
    if annotation is None:
        return False
    said = [node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)]
    return any(name in _NOT_IN_JSON or (name not in _PLAIN and _is_type(names.get(name))) for name in said)


def _is_type(found: object) -> bool:
    """A class, or a name that a cell gave to a type: `Level = Literal["low", "high"]`."""
    return isinstance(found, type) or typing.get_origin(found) is not None


def resolve(annotation: ast.expr | None, names: Mapping[str, Any]) -> Any:  # noqa: PLR0911 - a table
    """The type that an annotation means; raises ValueError for one that means none."""
    match annotation:
        case None:
            return str
        case ast.Constant(value=None):
            return None
        case ast.Constant(value=str(text)):
            return resolve(ast.parse(text, mode="eval").body, names)
        case ast.Name(id=name):
            return _look_up(name, names)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return Union[resolve(left, names), resolve(right, names)]  # noqa: UP007 - made, not written
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[inner, said, *_])):
            return Annotated[resolve(inner, names), ast.literal_eval(said)]
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
            return Literal[ast.literal_eval(inner)]
        case ast.Subscript(value=ast.Name(id=generic), slice=inner) if generic in _GENERICS:
            return _GENERICS[generic][_parameters(inner, names)]
        case _:
            raise ValueError(f"cannot read the type {ast.unparse(annotation)!r}")


def _look_up(name: str, names: Mapping[str, Any]) -> Any:
    if name in _PLAIN:
        return _PLAIN[name]
    found = names.get(name)
    if _is_type(found):
        return found
    raise ValueError(f"unknown type {name!r}: define the class in a cell before the call")


def _parameters(inner: ast.expr, names: Mapping[str, Any]) -> Any:
    items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    read = tuple(
        item.value if isinstance(item, ast.Constant) and item.value is ... else resolve(item, names)
        for item in items
    )
    return read if len(read) != 1 else read[0]
