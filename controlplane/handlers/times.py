"""Milliseconds of the database, as people read times."""

from datetime import UTC, datetime


def at_ms(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, tz=UTC)
