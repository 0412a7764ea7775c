"""Long texts of trace events, kept once and named by their hash; what is left of an event refers to them.

In an event `{"$blob": SHA256}` stands for a text, `{"$json": SHA256}` for a value whose JSON is the text. Put back, the event
is what it was, to the order of its keys. Whether an event was packed must be known from outside: its own words may look the same.
"""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from rlm_worker.contracts.base import JsonObject

#: Texts of more characters are kept apart. A shorter one fits into a page of the database together with its event, and costs
#: less there than a reference to it with a row and an index entry of its own.
LARGE = 4_096
_BLOB, _JSON = "$blob", "$json"


def mark_of(content: bytes) -> str:
    """The name of a text."""
    return hashlib.sha256(content).hexdigest()


def to_bytes(text: str) -> bytes:
    """As it is hashed and kept. Half a surrogate pair survives."""
    return text.encode("utf-8", "surrogatepass")


def to_text(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass")


def packed(event: JsonObject, kept: dict[str, bytes]) -> JsonObject:
    """The event without its long parts; those go into `kept`, by their marks."""
    return {name: _part(part, kept) for name, part in event.items()}


def _part(part: Any, kept: dict[str, bytes]) -> Any:
    """One field: its long texts apart, or all of it when it is long without holding one."""
    inside: dict[str, bytes] = {}
    left = _texts_apart(part, inside)
    if isinstance(part, dict | list) and len(json.dumps(left)) > LARGE:
        return {_JSON: _keep(json.dumps(part), kept)}
    kept |= inside
    return left


def _texts_apart(part: Any, kept: dict[str, bytes]) -> Any:
    if isinstance(part, str) and len(part) > LARGE:
        return {_BLOB: _keep(part, kept)}
    if isinstance(part, list):
        return [_texts_apart(item, kept) for item in part]
    if isinstance(part, dict):
        if _BLOB in part or _JSON in part:
            return {_JSON: _keep(json.dumps(part), kept)}
        return {name: _texts_apart(item, kept) for name, item in part.items()}
    return part


def _keep(text: str, kept: dict[str, bytes]) -> str:
    content = to_bytes(text)
    mark = mark_of(content)
    kept[mark] = content
    return mark


def unpacked(part: Any, text_of: Callable[[str], str]) -> Any:
    """The value with every text put back. Raises what `text_of` raises for a mark it does not know."""
    if isinstance(part, list):
        return [unpacked(item, text_of) for item in part]
    if not isinstance(part, dict):
        return part
    if part.keys() == {_BLOB}:
        return text_of(part[_BLOB])
    if part.keys() == {_JSON}:
        return json.loads(text_of(part[_JSON]))
    return {name: unpacked(item, text_of) for name, item in part.items()}
