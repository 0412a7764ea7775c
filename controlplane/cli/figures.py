"""How numbers read to a person: counts, bytes, durations, money, ages. Pure."""

from datetime import UTC, datetime
from decimal import Decimal


def count(number: int) -> str:
    """1234567 as 1.2M; numbers below ten thousand are written out."""
    if number < 10_000:
        return f"{number:,}"
    for limit, divisor, unit in ((1_000_000, 1_000, "k"), (1_000_000_000, 1_000_000, "M")):
        if number < limit:
            return f"{number / divisor:.4g}{unit}" if number % divisor else f"{number // divisor}{unit}"
    return f"{number / 1_000_000_000:.4g}G"


def size(number: int) -> str:
    """Bytes in the unit a person would use."""
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{number} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit returns")


def duration(milliseconds: int) -> str:
    """Milliseconds as 12 ms, 3.4 s, 2:05 min or 1:02:03 h."""
    if milliseconds < 1_000:
        return f"{milliseconds} ms"
    seconds, rest = divmod(milliseconds, 1_000)
    if seconds < 60:
        return f"{seconds + rest / 1000:.1f} s"
    minutes, seconds = divmod(seconds, 60)
    if minutes < 60:
        return f"{minutes}:{seconds:02} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02} h"


def money(usd: Decimal | None) -> str:
    """Dollars with as many places as the amount needs; None is a price nobody knows."""
    if usd is None:
        return "price unknown"
    if usd == 0:
        return "$0"
    if usd < Decimal("0.0001"):
        return "under $0.0001"
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"


def age(then: datetime, *, now: datetime | None = None) -> str:
    """How long ago, in its largest unit."""
    seconds = max(((now or datetime.now(UTC)) - as_utc(then)).total_seconds(), 0)
    for limit, divisor, unit in ((60, 1, "s"), (3_600, 60, "min"), (86_400, 3_600, "h")):
        if seconds < limit:
            return f"{int(seconds // divisor)} {unit}"
    return f"{int(seconds // 86_400)} d"


def as_utc(moment: datetime) -> datetime:
    """A moment of the store, which keeps UTC without saying so."""
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def between(start: datetime, end: datetime) -> str:
    """Time from one moment to another."""
    return duration(max(int((as_utc(end) - as_utc(start)).total_seconds() * 1000), 0))


def counted(number: int, noun: str) -> str:
    """`1 cell`, `2 cells`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
