"""Cursors: opaque to callers, checked when they come back. They hold where a list was, and of which list."""

import base64
import json

from controlplane.errors import BadCursor

_LONGEST = 1_000


def cursor(of: str, place: str | int) -> str:
    """Where to go on in a list."""
    return base64.urlsafe_b64encode(json.dumps([of, place]).encode()).decode().rstrip("=")


def text_place(of: str, given: str | None) -> str:
    """The place that a cursor of this list holds; empty for the beginning."""
    place = "" if given is None else _place(of, given)
    if not isinstance(place, str):
        raise _unknown()
    return place


def number_place(of: str, given: str | None) -> int | None:
    place = None if given is None else _place(of, given)
    if isinstance(place, str):
        raise _unknown()
    return place


def _place(of: str, given: str) -> str | int:
    try:
        padded = given + "=" * (-len(given) % 4)
        body = json.loads(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        raise _unknown() from None
    if len(given) > _LONGEST or not isinstance(body, list) or len(body) != 2 or body[0] != of:
        raise _unknown()
    place: str | int = body[1]
    is_number = isinstance(place, int) and not isinstance(place, bool) and 0 <= place < 2**53
    is_text = isinstance(place, str) and place.isascii() and place.isprintable()
    if not is_number and not is_text:
        raise _unknown()
    return place


def _unknown() -> BadCursor:
    return BadCursor("this cursor is of no answer to this list")
