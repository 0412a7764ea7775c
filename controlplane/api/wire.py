"""Bodies of the gateway on the wire: read within a limit, unpacked within the same limit, answered packed; refusals as problems."""

import json
import zlib
from dataclasses import dataclass
from typing import TypeVar

import zstandard
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError
from starlette.requests import Request
from starlette.responses import Response

from rlm_worker.contracts.base import Contract

Body = TypeVar("Body", bound=Contract)

#: Shorter answers are sent as they are.
_PACKED_BYTES = 4_096
_PROBLEM = "application/problem+json"


@dataclass(eq=False)
class Refused(Exception):
    """An answer other than the one that was asked for."""

    status: int
    code: str
    title: str
    detail: str
    hint: str = ""

    def response(self, instance: str) -> Response:
        body = {
            "type": "about:blank",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "instance": instance,
            "code": self.code,
            "hint": self.hint,
        }
        headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}.get(self.status, {})
        return Response(json.dumps(body), status_code=self.status, media_type=_PROBLEM, headers=headers)


def too_large(limit: int) -> Refused:
    return Refused(
        413,
        "too_large",
        "the request is too large",
        f"a request to the gateway may have {limit:,} bytes, packed and unpacked",
        "send less at once, or have the setting request_bytes raised",
    )


def malformed(detail: str) -> Refused:
    return Refused(
        422, "malformed", "the request cannot be read", detail, "is the worker of another version?"
    )


async def read_body(request: Request, *, limit: int) -> bytes:
    """The bytes of a request as they came, if they are not too many."""
    said = request.headers.get("content-length", "")
    if said.isdigit() and int(said) > limit:
        raise too_large(limit)
    chunks, size = list[bytes](), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def unpacked(body: bytes, coding: str, *, limit: int) -> bytes:
    """The bytes as they were before they were packed; what would become too many is not unpacked to its end."""
    try:
        match coding.strip().lower():
            case "" | "identity":
                return body
            case "gzip":
                found = zlib.decompressobj(31).decompress(body, limit + 1)
            case "zstd":
                with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(body) as reader:
                    found = reader.read(limit + 1)
            case other:
                raise Refused(
                    415, "coding", "the coding is not known", f"a body may be zstd or gzip, not {other!r}"
                )
    except (zlib.error, zstandard.ZstdError) as error:
        raise malformed(f"the body is not {coding}: {error}") from error
    if len(found) > limit:
        raise too_large(limit)
    return found


def parsed(contract: type[Body], body: bytes) -> Body:
    """The value that a body holds. Halves of surrogate pairs, which JSON may name, are read by the slower of two ways."""
    try:
        try:
            return contract.model_validate_json(body)
        except ValidationError as error:
            if error.errors()[0]["type"] != "json_invalid":
                raise
            return contract.model_validate(json.loads(body))
    except ValidationError as error:
        raise malformed(f"the body is no {contract.__name__}: {_first(error)}") from error
    except (ValueError, RecursionError) as error:
        raise malformed(f"the body is no JSON: {error}") from error


def _first(error: ValidationError) -> str:
    said = error.errors()[0]
    place = ".".join(str(part) for part in said["loc"])
    return f"{place or 'it'}: {said['msg']}"


def encoded(answer: Contract) -> bytes:
    try:
        return answer.model_dump_json().encode()
    except PydanticSerializationError:
        return json.dumps(answer.model_dump(mode="json")).encode()


def answered(body: bytes, accept: str, *, media_type: str = "application/json") -> Response:
    """A body as the caller reads it best."""
    if len(body) < _PACKED_BYTES or "zstd" not in accept:
        return Response(body, media_type=media_type)
    packed = zstandard.ZstdCompressor(level=1).compress(body)
    return Response(packed, media_type=media_type, headers={"Content-Encoding": "zstd"})
