"""Errors as answers: one table from what happened to a status, in the form of RFC 9457. A defect gets an id and no more."""

import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from controlplane import errors
from controlplane.api.bodies import Misfit, Problem

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


class Unauthenticated(Exception):
    """Nobody knows who asks."""


class Busy(errors.Unavailable):
    """Everybody who could answer is at work."""


class TooMany(errors.ControlPlaneError):
    """One caller asks more often than it may."""

    def __init__(self, message: str, *, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class WrongType(errors.InvalidRequest):
    """A body of a media type that is not taken here."""


#: From the special to the general: what happened, its status, its word, and what to do next.
_TABLE: tuple[tuple[type[Exception], int, str, str], ...] = (
    (
        Unauthenticated,
        401,
        "unauthenticated",
        "Send `Authorization: Bearer` with a key or a token that is valid.",
    ),
    (TooMany, 429, "too_many_requests", "Wait for the time that Retry-After names."),
    (errors.BadCursor, 400, "bad_cursor", "Begin the list again, without a cursor."),
    (WrongType, 415, "wrong_media_type", "Send the body as application/json."),
    (errors.TooLarge, 413, "too_large", "Send less at once; files go through uploads."),
    (errors.KeyReused, 422, "idempotency_key_reused", "Take a new Idempotency-Key for a new request."),
    (errors.InvalidRequest, 422, "invalid_request", "Change the request as the detail says."),
    (errors.NotFound, 404, "not_found", "Look the name up in a list."),
    (errors.Denied, 403, "denied", "Ask an administrator for the permission."),
    (errors.OverBudget, 409, "over_budget", "Ask for less, or for a higher limit."),
    (errors.NotAsSeen, 412, "not_as_seen", "Read it again, then decide."),
    (errors.UnderWay, 409, "under_way", "Ask again in a moment with the same Idempotency-Key."),
    (errors.Stale, 409, "stale", "Read it again, then decide."),
    (errors.Tampered, 500, "tampered", "Stop, and look before anything else: stored records do not hold."),
    (Busy, 503, "busy", "Wait for the time that Retry-After names."),
    (errors.Unavailable, 503, "unavailable", "Wait a moment and ask again."),
)
TITLES: Mapping[int, str] = {
    400: "The request cannot be read",
    401: "It is not known who asks",
    403: "This is not permitted",
    404: "There is nothing of that name",
    405: "This cannot be done here",
    406: "It cannot be answered in this form",
    409: "Something else is in the way",
    412: "It is not as it was seen",
    413: "It is too much at once",
    415: "This media type is not taken",
    422: "The request does not fit",
    429: "Too many requests",
    500: "A defect of the server",
    503: "Not available for the moment",
}
_CODES = {400: "bad_request", 404: "not_found", 405: "wrong_method", 413: "too_large"}
_HINTS = {
    400: "Send JSON in UTF-8.",
    404: "See /v1/openapi.json for what there is.",
    405: "See /v1/openapi.json for what can be done here.",
}


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    instance: str,
    hint: str = "",
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """One answer of the table; `more` are further fields of it."""
    body = Problem(
        type=f"urn:custody:problem:{code}",
        title=TITLES.get(status, "The request was not carried out"),
        status=status,
        detail=detail,
        instance=instance,
        code=code,
        hint=hint,
        **more,
    )
    return Response(
        body.model_dump_json(), status_code=status, media_type=MEDIA_TYPE, headers=dict(headers or {})
    )


def as_problem(error: Exception, *, instance: str) -> Problem:
    """An error as part of an answer."""
    return Problem.model_validate_json(bytes(answer_to(error, instance=instance).body))


def answer_to(error: Exception, *, instance: str) -> Response:
    """What a caller is told of an error."""
    for kind, status, code, hint in _TABLE:
        if isinstance(error, kind):
            return problem(
                status, code, _shown(error), instance=instance, hint=hint, headers=_headers(error, status)
            )
    error_id = secrets.token_hex(8)
    log.error("defect %s at %s", error_id, instance, exc_info=error)
    return problem(
        500,
        "defect",
        "something went wrong in the server, and it is in its log under the error id",
        instance=instance,
        hint="Give the error id to whoever runs the server.",
        error_id=error_id,
    )


def _shown(error: Exception) -> str:
    return str(error).encode("utf-8", "replace").decode()


def _headers(error: Exception, status: int) -> dict[str, str]:
    if isinstance(error, TooMany):
        return {"Retry-After": str(max(1, round(error.seconds)))}
    if isinstance(error, Unauthenticated):
        return {"WWW-Authenticate": 'Bearer realm="custody"'}
    waits = status == 503 or (isinstance(error, errors.UnderWay) and not error.is_lost)
    return {"Retry-After": "1"} if waits else {}


def install(app: FastAPI) -> None:
    """Answer every error of an app in this form."""

    async def told(request: Request, error: Exception) -> Response:
        return answer_to(error, instance=request.url.path)

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return _invalid(error, instance=request.url.path)

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _refused(error, instance=request.url.path)

    for kind in (errors.ControlPlaneError, Unauthenticated):
        app.add_exception_handler(kind, told)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, refused)


def _invalid(error: RequestValidationError, *, instance: str) -> Response:
    found: Sequence[Any] = error.errors()
    is_unread = any(each["type"] == "json_invalid" for each in found)
    misfits = tuple(Misfit(where=_where(each["loc"]), what=_plain(each["msg"])) for each in found[:20])
    if is_unread:
        return problem(
            400, "bad_request", "the body is not JSON", instance=instance, hint=_HINTS[400], errors=misfits
        )
    first = misfits[0]
    return problem(
        422,
        "invalid_request",
        f"{first.where}: {first.what}" if first.where else first.what,
        instance=instance,
        hint="Change what `errors` names.",
        errors=misfits,
    )


def _where(place: Sequence[str | int]) -> str:
    return _plain(".".join(str(part) for part in place))


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode()[:500]


def _refused(error: HTTPException, *, instance: str) -> Response:
    status = error.status_code
    return problem(
        status,
        _CODES.get(status, "refused"),
        f"{instance}: {error.detail}",
        instance=instance,
        hint=_HINTS.get(status, ""),
        headers=error.headers,
    )
