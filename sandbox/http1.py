"""One HTTP/1.1 exchange over a stream, every part of the answer bounded. Knows no hosts, follows nothing, decodes nothing."""

import asyncio
import re
from dataclasses import dataclass

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}):[\t ]*([\t\x20-\x7e\x80-\xff]*)")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})(?:[\t ]*;[\t\x20-\x7e\x80-\xff]*)?[\t ]*")
_LENGTH = re.compile(r"[0-9]{1,18}")

LINE_BYTES = 16 << 10
_HEADERS = 200
_HEADERS_BYTES = 64 << 10
_INTERIM_ANSWERS = 8
_READ_BYTES = 64 << 10
_CHUNKS, _CHUNKS_AT_ONCE = 1 << 16, 256

Headers = tuple[tuple[str, str], ...]


class BadAnswer(Exception):
    """The server's answer is no HTTP, is ambiguous, ended early, or is larger than allowed."""


@dataclass(frozen=True)
class Answer:
    status: int
    reason: str
    headers: Headers
    body: bytes


def request_bytes(method: str, path: str, headers: Headers, body: bytes) -> bytes:
    """Write a request whose parts have been checked."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


async def read_answer(reader: asyncio.StreamReader, *, method: str, most_bytes: int) -> Answer:
    """Read the answer to one request on a connection that is closed afterwards."""
    try:
        status, reason, headers = await _head(reader)
        body = b"" if _is_bodiless(method, status) else await _body(reader, headers, most_bytes)
    except asyncio.IncompleteReadError:
        raise BadAnswer("the answer ended early") from None
    except asyncio.LimitOverrunError:
        raise BadAnswer(f"a line of the answer is longer than {LINE_BYTES} bytes") from None
    return Answer(status, reason, headers, body)


async def _head(reader: asyncio.StreamReader) -> tuple[int, str, Headers]:
    for _ in range(_INTERIM_ANSWERS):
        match = _STATUS.fullmatch(await _line(reader))
        if match is None:
            raise BadAnswer("the answer is no HTTP/1.1")
        headers = await _headers(reader)
        status = int(match[1])
        if status >= 200:
            return status, (match[2] or b"").decode("latin-1"), headers
    raise BadAnswer("there are too many interim answers")


async def _line(reader: asyncio.StreamReader) -> bytes:
    line = await reader.readuntil(b"\n")
    return line[:-1].removesuffix(b"\r")


async def _headers(reader: asyncio.StreamReader) -> Headers:
    found: list[tuple[str, str]] = []
    size = 0
    while line := await _line(reader):
        size += len(line)
        match = _HEADER.fullmatch(line)
        if match is None:
            raise BadAnswer("a header of the answer is malformed")
        found.append((match[1].decode("ascii"), match[2].strip(b"\t ").decode("latin-1")))
        if len(found) > _HEADERS or size > _HEADERS_BYTES:
            raise BadAnswer(f"the answer has more than {_HEADERS} headers or {_HEADERS_BYTES} bytes of them")
    return tuple(found)


def _is_bodiless(method: str, status: int) -> bool:
    return method == "HEAD" or status in {204, 304}


async def _body(reader: asyncio.StreamReader, headers: Headers, most_bytes: int) -> bytes:
    codings = [value.lower() for name, value in headers if name.lower() == "transfer-encoding"]
    lengths = {value for name, value in headers if name.lower() == "content-length"}
    if codings:
        if codings != ["chunked"] or lengths:
            raise BadAnswer("the answer does not say clearly where it ends")
        return await _chunked(reader, most_bytes)
    if not lengths:
        return await _until_closed(reader, most_bytes)
    if len(lengths) > 1 or _LENGTH.fullmatch(length := lengths.pop()) is None:
        raise BadAnswer("the answer does not say clearly where it ends")
    if int(length) > most_bytes:
        raise _too_large(most_bytes)
    return await reader.readexactly(int(length))


async def _chunked(reader: asyncio.StreamReader, most_bytes: int) -> bytes:
    body = bytearray()
    for number in range(_CHUNKS):
        if number % _CHUNKS_AT_ONCE == _CHUNKS_AT_ONCE - 1:
            await asyncio.sleep(
                0
            )  # what is buffered already is read without a pause: others want to work as well
        match = _CHUNK.fullmatch(await _line(reader))
        if match is None:
            raise BadAnswer("a chunk of the answer is malformed")
        size = int(match[1], 16)
        if size == 0:
            await _headers(reader)
            return bytes(body)
        if len(body) + size > most_bytes:
            raise _too_large(most_bytes)
        body += await reader.readexactly(size)
        if await _line(reader):
            raise BadAnswer("a chunk of the answer is longer than it says")
    raise BadAnswer(f"the answer comes in more than {_CHUNKS} chunks")


async def _until_closed(reader: asyncio.StreamReader, most_bytes: int) -> bytes:
    body = bytearray()
    while data := await reader.read(_READ_BYTES):
        body += data
        if len(body) > most_bytes:
            raise _too_large(most_bytes)
    return bytes(body)


def _too_large(most_bytes: int) -> BadAnswer:
    return BadAnswer(f"the answer holds more than {most_bytes} bytes")
