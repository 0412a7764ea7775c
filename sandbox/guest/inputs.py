"""Values of a cell to plain JSON, in one deterministic form, because traces are replayed. Sends nothing."""

import dataclasses
import enum
import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import date
from typing import Any

from sandbox.guest.documents import Document
from sandbox.guest.search import Hit

_MAX_DOCUMENT = 200_000
_MAX_OTHER = 20_000
_MAX_DEPTH = 32


def plain(value: Any, *, depth: int = 0) -> Any:
    """JSON data: texts of hits, lines and chunks, sorted sets, ISO dates; what has no form of its own as str()."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"inputs may be nested at most {_MAX_DEPTH} levels deep")
    for kinds, form in _FORMS:
        if isinstance(value, kinds):
            return form(value, depth + 1)
    if hasattr(type(value), "__plain__"):
        return plain(value.__plain__(), depth=depth + 1)
    if hasattr(type(value), "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _fields(value, depth + 1)
    return str(value)[:_MAX_OTHER]


def _mapping(value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
    return {str(key): plain(item, depth=depth) for key, item in value.items()}


def _items(value: Iterable[Any], depth: int) -> list[Any]:
    return [plain(item, depth=depth) for item in value]


def _fields(value: Any, depth: int) -> dict[str, Any]:
    return {field.name: plain(getattr(value, field.name), depth=depth) for field in dataclasses.fields(value)}


def _finite(value: float, _depth: int) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} is not a JSON number: replace it before the call, for example by None")
    return float(value)


def _document_text(document: Document, _depth: int) -> str:
    if document.size > _MAX_DOCUMENT:
        raise TypeError(
            f"{document.name} has {document.size:,} bytes, too many for a prompt: pass a slice such as doc[1:200], "
            "a hit's .context(), or the pieces of doc.chunks() with predict_batch()"
        )
    return document.text


#: The first kind that fits decides; an Enum may also be a str, and a bool is an int.
_FORMS: tuple[tuple[Any, Callable[[Any, int], Any]], ...] = (
    (enum.Enum, lambda value, depth: plain(value.value, depth=depth)),
    ((bool, type(None)), lambda value, _: value),
    (str, lambda value, _: str(value)),
    (int, lambda value, _: int(value)),
    (float, _finite),
    (Document, _document_text),
    (Hit, lambda value, _: value.text),
    (Mapping, _mapping),
    ((list, tuple), _items),
    ((set, frozenset), lambda value, depth: sorted(_items(value, depth), key=compact)),
    ((bytes, bytearray, memoryview), lambda value, _: bytes(value).decode("utf-8", "replace")),
    (date, lambda value, _: value.isoformat()),
)


def compact(value: Any) -> str:
    """Compact JSON text of plain data, for measuring and ordering."""
    return json.dumps(value, separators=(",", ":"), sort_keys=True)
