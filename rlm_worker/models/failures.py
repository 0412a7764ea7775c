"""From what a server answered to the error that says what must happen next. One table for every client."""

import re
from collections.abc import Mapping

from rlm_worker.models.errors import (
    ContextTooLong,
    Malformed,
    ModelError,
    NotAuthorised,
    Overloaded,
    RateLimited,
    Refused,
    UnknownModel,
    Unreachable,
)
from rlm_worker.models.resets import seconds_until_reset

_TOO_LONG = re.compile(
    r"context.{0,12}(length|window|size)|maximum context|too many (input )?tokens|prompt is too long|input is too long",
    re.IGNORECASE,
)
_FILTERED = re.compile(r"content.?(filter|policy|management)|safety", re.IGNORECASE)
_NO_CREDIT = re.compile(r"insufficient.?(quota|credit|balance)|billing|credit balance", re.IGNORECASE)
_KEY_LIKE = re.compile(r"\b(sk|pk|key|AIza|gsk|xai)[-_][\w*.-]{6,}|(?i:bearer)\s+\S+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def error_for_status(  # noqa: PLR0911  # a table: one line a status
    model: str, status: int, body: str, *, headers: Mapping[str, str], secret: str | None = None
) -> ModelError:
    """The error for an HTTP answer that is not a success; header names in lower case."""
    said = excerpt(body, secret=secret)
    if status in {401, 403}:
        return NotAuthorised(
            model, f"the server refused the key (HTTP {status}: {said}); set the right one and try again"
        )
    if status == 404:
        return UnknownModel(
            model, f"the server knows no such model or path (HTTP 404: {said}); check the name and the URL"
        )
    if status == 402 or (status == 429 and _NO_CREDIT.search(body)):
        return NotAuthorised(
            model, f"the account has no credit left ({said}); top it up or choose another model"
        )
    if status == 429:
        wait = seconds_until_reset(headers, body=body)
        when = f"in {wait:g} s" if wait is not None else "later"
        return RateLimited(model, f"too many requests ({said}); ask again {when}", retry_after_seconds=wait)
    if status in {400, 413, 422}:
        return _rejected(model, status, body, said)
    if status == 408:
        return Unreachable(
            model, "the server gave up waiting for the request (HTTP 408); ask again", may_have_spent=True
        )
    if status >= 500:
        return Overloaded(
            model,
            f"the server failed (HTTP {status}: {said}); ask again later",
            may_have_spent=status in {500, 504},
        )
    return Malformed(model, f"unexpected HTTP {status} ({said}); check that the URL is the API's base URL")


def _rejected(model: str, status: int, body: str, said: str) -> ModelError:
    if status == 413 or _TOO_LONG.search(body):
        return ContextTooLong(model, f"the messages do not fit the model's context ({said}); send less")
    if _FILTERED.search(body):
        return Refused(
            model, f"a content filter declined the request ({said}); reword it or choose another model"
        )
    return Malformed(model, f"the server does not accept the request (HTTP {status}: {said})")


def excerpt(body: str, *, secret: str | None = None) -> str:
    """The gist of an error body for a message: short, one line, without anything that looks like a key."""
    text = body
    if found := re.search(r'"message"\s*:\s*"((?:[^"\\]|\\.){1,400})', body):
        text = found.group(1)
    if secret:
        text = text.replace(secret, "[key]")
    text = _CONTROL.sub(" ", _KEY_LIKE.sub("[key]", text)).strip()
    return f"{text[:297]}..." if len(text) > 300 else text or "no reason given"
