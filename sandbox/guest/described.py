"""What the author of a class said about it and its fields: docstring, metadata, the remark at the end of a line."""

import ast
import dataclasses
import inspect
import io
import linecache
import tokenize
import typing
from typing import Any

Schema = dict[str, Any]


def described(schema: Schema, about: str) -> Schema:
    """The schema with its description, if there is one and none stands there yet."""
    return {**schema, "description": about} if about and "description" not in schema else schema


def about_class(cls: type) -> str:
    """The first paragraph of a docstring that a person wrote."""
    doc = cls.__dict__.get("__doc__") or ""
    # A dataclass without a docstring is given its signature as one.
    return "" if doc.startswith(f"{cls.__name__}(") else " ".join(doc.strip().split("\n\n")[0].split())


def about_fields(cls: type) -> dict[str, str]:
    """What is said about each field, by metadata first, then by the remark beside it."""
    said = _remarks(cls)
    if dataclasses.is_dataclass(cls):
        told = {f.name: f.metadata.get("description") for f in dataclasses.fields(cls)}
        said |= {name: text for name, text in told.items() if isinstance(text, str)}
    return said


def about_annotation(annotation: object) -> str:
    """The text in `Annotated[str, "what it is"]`."""
    texts = [extra for extra in typing.get_args(annotation)[1:] if isinstance(extra, str)]
    return texts[0] if texts else ""


def _remarks(cls: type) -> dict[str, str]:
    """Remarks in the class body, looked for in the sources of the cells, latest first."""
    fields = list(inspect.get_annotations(cls))
    for filename in reversed([name for name in linecache.cache if name.startswith("<")]):
        source = "".join(linecache.getlines(filename))
        if f"class {cls.__name__}" not in source:
            continue
        try:
            body = _class_body(source, cls.__name__, fields)
            if body is not None:
                comments = _comments(source)
                return {name: comments[line] for name, line in body.items() if line in comments}
        except (SyntaxError, ValueError, tokenize.TokenError):
            continue
    return {}


def _class_body(source: str, name: str, fields: list[str]) -> dict[str, int] | None:
    """The last line of each annotated field of the class of this name and these fields."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            lines = {
                statement.target.id: statement.end_lineno or 0
                for statement in node.body
                if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
            }
            if list(lines) == fields:
                return lines
    return None


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {
        token.start[0]: token.string.lstrip("#").strip() for token in tokens if token.type == tokenize.COMMENT
    }
