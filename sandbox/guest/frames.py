"""Frames between host and guest: a 4-byte big-endian length, then one JSON object. Used on both sides, stdlib only.

Nothing here trusts its input: size, depth, numbers and text are checked before a frame is handed on.
"""

import json
import math
import struct
from collections.abc import Iterable
from typing import NoReturn, TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
JsonObject: TypeAlias = dict[str, JsonValue]

HEADER = struct.Struct(">I")
# Three bytes of JSON can become a hundred of memory: what one frame may hold is counted before it is parsed.
MAX_ITEMS = 1 << 20
_ITEM_BYTES = 100
_TOO_MANY = f"more than {MAX_ITEMS} items in one frame"


class FrameError(ValueError):
    """The bytes or the value are not a frame that may cross the channel; the message says why."""


def encode(frame: JsonObject, *, max_bytes: int) -> bytes:
    """Return header and body. Lone surrogates become '?', so that what leaves is always UTF-8."""
    try:
        text = json.dumps(frame, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise FrameError(f"not plain JSON data: {error}") from None
    body = text.encode("utf-8", errors="replace")
    _count_items(body)
    if len(body) > max_bytes:
        raise FrameError(f"{len(body)} bytes are more than the {max_bytes} bytes one frame may hold")
    return HEADER.pack(len(body)) + body


def body_length(header: bytes, *, max_bytes: int) -> int:
    """Return how many bytes follow the header."""
    (length,) = HEADER.unpack(header)
    if length > max_bytes:
        raise FrameError(f"a frame of {length} bytes was announced, {max_bytes} are allowed")
    return int(length)


def decode(body: bytes, *, max_depth: int) -> JsonObject:
    """Parse and check one body."""
    _count_items(body)
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError:
        raise FrameError("nested too deeply to parse") from None
    except (
        ValueError
    ) as error:  # malformed text, malformed JSON, integers beyond the interpreter's digit limit
        raise FrameError(f"not JSON: {str(error)[:200]}") from None
    if not isinstance(value, dict):
        raise FrameError("a frame must be a JSON object")
    check(value, max_depth=max_depth)
    if b"\\u" in body:  # only so can text hold half a character
        _check_texts(value)
    return value


def weight(body: bytes) -> int:
    """Say about how much memory a body takes when it is parsed: far more than its length, if it holds many small items."""
    return len(body) + _ITEM_BYTES * _marks(body)


def _count_items(body: bytes) -> None:
    """Refuse too many items. Commas inside of text are no items; they are taken out only when it matters."""
    if _marks(body) > MAX_ITEMS and _marks(_outside_of_text(body)) > MAX_ITEMS:
        raise FrameError(_TOO_MANY)


def _outside_of_text(body: bytes) -> bytes:
    """Return the body without its strings, in time and memory that grow with its length alone.

    Right up to the first mistake in the JSON, which is as far as a parser gets.
    """
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 4 * MAX_ITEMS:  # an item is at most a key and a value
        raise FrameError(_TOO_MANY)
    return b"".join(plain.split(b'"')[::2])


def _marks(body: bytes) -> int:
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def check(value: JsonValue, *, max_depth: int) -> None:
    """Refuse what is nested too deeply."""
    level: list[JsonValue] = [value]
    depth = 0
    while level:
        depth += 1
        if depth > max_depth:
            raise FrameError(f"nested more than {max_depth} levels deep")
        level = [child for item in level for child in _children(item) if isinstance(child, dict | list)]


def _children(item: JsonValue) -> Iterable[JsonValue]:
    if isinstance(item, dict):
        return item.values()
    return item if isinstance(item, list) else ()


def _check_texts(value: JsonValue) -> None:
    """Refuse lone surrogates. Written out again and not looked through: a frame can hold a million texts."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise FrameError("text holds a lone surrogate") from None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise FrameError("a number is out of range")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise FrameError(f"{name} is not JSON")
