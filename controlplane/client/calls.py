"""One request as a value, and how its answer is read. Does no I/O and knows no HTTP library."""

import secrets
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, TypeAdapter, ValidationError

from controlplane.api.bodies import Problem
from controlplane.client.errors import ServerFailed, error_of

T = TypeVar("T")
Query = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Said:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Call(Generic[T]):
    """A request, and what its answer becomes."""

    method: str
    path: str
    read: Callable[[Said], T]
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    #: Whether it may be sent again when nobody knows what became of it.
    is_repeatable: bool = True
    #: Answers of this status are read like good ones.
    also: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Pause:
    """A wait between two requests, in seconds."""

    seconds: float


#: Several requests that make one act; it is sent what each call gave, and returns what the act gives.
Plan = Generator[Call[Any] | Pause, Any, T]


@dataclass(frozen=True)
class Versioned(Generic[T]):
    """Something as it was read, and the tag with which a change can insist on just that."""

    body: T
    etag: str


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def body_as(kind: type[T]) -> Callable[[Said], T]:
    """Read an answer as a body of this kind."""
    wanted: Any = kind

    def read(said: Said) -> T:
        try:
            found: T = _adapter(wanted).validate_json(said.body)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the answer"
            raise ServerFailed(
                f"the server's answer cannot be read ({where}: {first['msg']}). Is it a Custody server, and is "
                "this client of the same release? See: custody doctor"
            ) from None
        return found

    return read


def versioned_as(kind: type[T]) -> Callable[[Said], Versioned[T]]:
    body = body_as(kind)
    return lambda said: Versioned(body(said), said.headers.get("etag", ""))


def nothing(_said: Said) -> None:
    """For answers without a body."""


def get(
    path: str, read: Callable[[Said], T], query: Query | None = None, *, also: Iterable[int] = ()
) -> Call[T]:
    return Call(method="GET", path=path, read=read, query=_query(query or {}), also=frozenset(also))


def post(
    path: str,
    read: Callable[[Said], T],
    body: BaseModel,
    *,
    key: str | None = None,
    if_match: str = "",
    query: Query | None = None,
) -> Call[T]:
    """A request that changes something. Its key makes sending it twice the same as sending it once."""
    headers = {"Idempotency-Key": key or secrets.token_hex(16), "Content-Type": "application/json"}
    if if_match:
        headers["If-Match"] = if_match
    content = body.model_dump_json().encode()
    return Call(
        method="POST",
        path=path,
        read=read,
        headers=headers,
        content=content,
        query=_query(query or {}),
    )


def change(method: str, path: str, read: Callable[[Said], T], body: BaseModel | None = None) -> Call[T]:
    """A request that says how something is to be: sent twice, it is the same."""
    if body is None:
        return Call(method=method, path=path, read=read)
    content = body.model_dump_json().encode()
    return Call(
        method=method, path=path, read=read, content=content, headers={"Content-Type": "application/json"}
    )


def segment(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def _query(query: Query) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for name, value in query.items():
        many = value if isinstance(value, tuple) else (value,)
        found += [(name, _text(one)) for one in many if one is not None and one != "" and one is not False]
    return tuple(found)


def _text(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat()
        case _:
            return str(value)


def read(call: Call[T], said: Said) -> T:
    """What an answer gives; raises what it says went wrong."""
    if 200 <= said.status < 300 or said.status in call.also:
        return call.read(said)
    raise refusal(call.path, said)


def refusal(path: str, said: Said) -> Exception:
    """The error in an answer, whoever wrote it."""
    error = error_of(said.status, _problem(path, said))
    error.retry_after = seconds_of(said.headers.get("retry-after", ""))
    return error


def _problem(path: str, said: Said) -> Problem:
    try:
        return Problem.model_validate_json(said.body)
    except ValidationError:
        words = f"the server answered {path} with {said.status} and nothing that a Custody says"
        if 300 <= said.status < 400:
            words += (
                f"; it points to {said.headers.get('location', 'elsewhere')!r}: name that address instead"
            )
        return Problem(type="about:blank", title=words, status=said.status, code=f"http_{said.status}")


def seconds_of(text: str) -> float | None:
    """What Retry-After says, in seconds."""
    try:
        return max(float(text), 0.0)
    except ValueError:
        return _until(text)


def _until(text: str) -> float | None:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415  # proxies write a date, a Custody does not

    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max((at - datetime.now(at.tzinfo)).total_seconds(), 0.0)
