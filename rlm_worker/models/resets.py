"""When a rate limit ends, as providers say it: seconds, milliseconds, HTTP dates, RFC 3339, durations, epochs, error bodies."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

#: Pairs of headers: what is left of an allowance, and when it is full again. Names in lower case.
_ALLOWANCES = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("ratelimit-remaining", "ratelimit-reset"),
)
_NUMBER = re.compile(r"\s*\d+(\.\d+)?\s*")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
#: Google says it in the body of the error: "retryDelay": "34.5s".
_DELAY = re.compile(r'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"')
#: Larger numbers are moments, not spans: seconds, then milliseconds, since 1970.
_EPOCH_SECONDS = 1_000_000_000
_EPOCH_MILLISECONDS = 1_000_000_000_000
#: More than any provider means; a header that says more is not believed.
_LONGEST = 7 * 86_400.0


def seconds_until_reset(
    headers: Mapping[str, str], *, body: str = "", now: datetime | None = None
) -> float | None:
    """How long to wait, from whichever form is there; None when nothing says it."""
    at = now or datetime.now(UTC)
    told = _told_plainly(headers, at)
    if told is None and (delay := _DELAY.search(body)):
        told = float(delay.group(1))
    if told is None:
        told = _of_allowances(headers, at)
    return None if told is None else min(max(0.0, told), _LONGEST)


def _told_plainly(headers: Mapping[str, str], now: datetime) -> float | None:
    if _NUMBER.fullmatch(milliseconds := headers.get("retry-after-ms", "")):
        return float(milliseconds) / 1000
    return _span(headers.get("retry-after", ""), now)


def _of_allowances(headers: Mapping[str, str], now: datetime) -> float | None:
    """The allowance that is used up names the time; when none is said to be, the one that takes longest."""
    told = [pair for pair in _ALLOWANCES if headers.get(pair[1])]
    used_up = [pair for pair in told if _is_zero(headers.get(pair[0]))]
    spans = (_span(headers[reset], now) for _, reset in used_up or told)
    return max((span for span in spans if span is not None), default=None)


def _is_zero(text: str | None) -> bool:
    return text is not None and _NUMBER.fullmatch(text) is not None and float(text) == 0


def _span(text: str, now: datetime) -> float | None:
    """Seconds from now, from a number, a duration such as 6m0s, an epoch, an HTTP date or an RFC 3339 time."""
    if not text:
        return None
    if _NUMBER.fullmatch(text):
        return _from_number(float(text), now)
    if _DURATION.sub("", text.strip()) == "":
        return sum(float(value) * _UNITS[unit] for value, unit in _DURATION.findall(text))
    moment = _moment(text)
    return None if moment is None else (moment - now).total_seconds()


def _from_number(value: float, now: datetime) -> float:
    if value >= _EPOCH_MILLISECONDS:
        return value / 1000 - now.timestamp()
    return value - now.timestamp() if value >= _EPOCH_SECONDS else value


def _moment(text: str) -> datetime | None:
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = read(text.strip())
        except (ValueError, TypeError, IndexError):
            continue
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return None
