"""Ids that sort by the time they were made."""

import secrets
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(prefix: str) -> str:
    """Make an id: the prefix, 48 bits of time and 50 of chance, in letters that are hard to misread."""
    return f"{prefix}_{_encode(time.time_ns() // 1_000_000, length=10)}{_encode(secrets.randbits(50), length=10)}"


def _encode(number: int, *, length: int) -> str:
    return "".join(_ALPHABET[(number >> shift) & 31] for shift in range(5 * (length - 1), -1, -5))
