"""A model that follows a script: a real OpenAI-compatible HTTP server on loopback, so that tests use the production client.

    with ScriptedModel(cells("SUBMIT(answer=42)")) as model:
        connect(model.url, settings=ModelSettings())

or alone: python tests/scripted_model.py --port 0 --rule echo_schema --latency 0.02
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """An HTTP error instead of an answer."""

    status: int
    body: str | JsonObject = ""
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Hang:
    """No answer at all, until the client goes away."""


@dataclass(frozen=True)
class Cut:
    """The connection is closed after this many bytes of the answer."""

    after_bytes: int = 0


@dataclass(frozen=True)
class Raw:
    """Exactly these bytes on the wire, then the connection is closed."""

    data: bytes


@dataclass(frozen=True)
class Answer:
    """An answer with more said about it than its text."""

    content: str | JsonObject
    finish_reason: str = "stop"
    refusal: str | None = None
    latency_seconds: float | None = None
    usage: JsonObject | None = None
    alternatives: dict[str, float] | None = None  # first differing token of the answer -> its probability


Reply = str | JsonObject | Fault | Hang | Cut | Raw | Answer
Script = Callable[[JsonObject, int], Reply]


# ── scripts ──────────────────────────────────────────────────────────────────────────────────────────────────


def schema_of(request: JsonObject) -> JsonObject | None:
    """The JSON Schema the answer must follow, when the request names one."""
    return ((request.get("response_format") or {}).get("json_schema") or {}).get("schema")


def user_text(request: JsonObject) -> str:
    """The content of the last user message."""
    said = [m["content"] for m in request["messages"] if m["role"] == "user"]
    content = said[-1] if said else ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def echo_schema(request: JsonObject, n: int) -> Reply:
    """A valid value of whatever schema is asked for (first choice everywhere); without a schema a short text."""
    schema = schema_of(request)
    return "ok" if schema is None else fill(schema)


def hashed_schema(request: JsonObject, n: int) -> Reply:
    """Like echo_schema, but choices depend on the user's text, so that different inputs get different answers."""
    schema = schema_of(request)
    seed = int.from_bytes(hashlib.sha256(user_text(request).encode()).digest()[:6], "big")
    return f"ok {seed % 1000}" if schema is None else fill(schema, seed=seed)


def always(reply: Reply) -> Script:
    return lambda request, n: reply


def in_turn(*replies: Reply) -> Script:
    """The n-th call gets the n-th reply; the last one stays."""
    return lambda request, n: replies[min(n, len(replies) - 1)]


def cells(*code_blocks: str, otherwise: Script = echo_schema, reasoning: str = "Next step.") -> Script:
    """The n-th root turn (a request without a schema) gets the n-th block in a python fence; the last one stays.

    Requests with a schema are subcalls and go to `otherwise`.
    """
    turns = iter(range(1_000_000))

    def script(request: JsonObject, n: int) -> Reply:
        if schema_of(request) is not None:
            return otherwise(request, n)
        block = code_blocks[min(next(turns), len(code_blocks) - 1)]
        return f"{reasoning}\n\n```python\n{block}\n```"

    return script


def fill(schema: Any, *, seed: int = 0, root: JsonObject | None = None) -> Any:
    """A value that satisfies the schema (no patterns); `seed` picks among the choices."""
    root = schema if root is None else root
    if schema is True or not schema:
        return "text"
    if "$ref" in schema:
        target: Any = root
        for key in schema["$ref"].removeprefix("#/").split("/"):
            target = target[key]
        return fill(target, seed=seed, root=root)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][seed % len(schema["enum"])]
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            options = [o for o in schema[union] if o.get("type") != "null"] or schema[union]
            return fill(options[0], seed=seed, root=root)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    return _FILLERS[kind](schema, seed, root)


def _fill_number(schema: JsonObject, seed: int, root: JsonObject) -> int | float:
    low: int | float = schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1)
    high = schema.get("maximum", schema.get("exclusiveMaximum", low + 100) - 1)
    return low + (seed % (math.floor(high - low) + 1) if high >= low else 0)


def _fill_string(schema: JsonObject, seed: int, root: JsonObject) -> str:
    formats = {
        "date": "2026-01-31",
        "date-time": "2026-01-31T12:00:00Z",
        "time": "12:00:00Z",
        "email": "a@example.com",
    }
    text = formats.get(schema.get("format", ""), "text" if not seed else f"text {seed % 1000}")
    return text.ljust(schema.get("minLength", 0), "x")[: schema.get("maxLength")]


def _fill_array(schema: JsonObject, seed: int, root: JsonObject) -> list[Any]:
    if "prefixItems" in schema:
        return [fill(item, seed=seed, root=root) for item in schema["prefixItems"]]
    return [fill(schema.get("items", True), seed=seed, root=root) for _ in range(schema.get("minItems", 1))]


def _fill_object(schema: JsonObject, seed: int, root: JsonObject) -> JsonObject:
    return {name: fill(sub, seed=seed, root=root) for name, sub in schema.get("properties", {}).items()}


_FILLERS: dict[str, Callable[[JsonObject, int, JsonObject], Any]] = {
    "boolean": lambda schema, seed, root: seed % 2 == 0,
    "null": lambda schema, seed, root: None,
    "integer": _fill_number,
    "number": _fill_number,
    "string": _fill_string,
    "array": _fill_array,
    "object": _fill_object,
}


# ── what an answer costs ─────────────────────────────────────────────────────────────────────────────────────


def tokens_of(text: str) -> int:
    return max(1, len(text.encode()) // 4)


def usage_of(request: JsonObject, content: str) -> JsonObject:
    """The usage this server reports for the call: a test can work out the same numbers."""
    asked = sum(
        4 + tokens_of(m["content"] if isinstance(m["content"], str) else json.dumps(m["content"]))
        for m in request["messages"]
    )
    answered = tokens_of(content)
    return {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered}


def _logprobs(answer: Answer, content: str) -> JsonObject:
    """The answer as tokens of four characters or fewer, each certain but for the one that has alternatives."""
    rivals = answer.alternatives or {}
    entries = []
    at = 0
    while at < len(content):
        token = next((r for r in rivals if content.startswith(r, at)), content[at : at + 1])
        chances = rivals if token in rivals else {token: 1.0}
        top = [{"token": t, "logprob": math.log(p), "bytes": list(t.encode())} for t, p in chances.items()]
        entries.append(
            {
                "token": token,
                "logprob": math.log(chances[token]),
                "bytes": list(token.encode()),
                "top_logprobs": top,
            }
        )
        at += len(token)
    return {"content": entries}


def completion(request: JsonObject, n: int, reply: str | JsonObject | Answer) -> JsonObject:
    answer = reply if isinstance(reply, Answer) else Answer(reply)
    content = answer.content if isinstance(answer.content, str) else json.dumps(answer.content)
    choice: JsonObject = {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": None if answer.refusal else content,
            "refusal": answer.refusal,
        },
        "finish_reason": answer.finish_reason,
    }
    if request.get("logprobs"):
        choice["logprobs"] = _logprobs(answer, content)
    return {
        "id": f"chatcmpl-{n}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": request.get("model", "scripted"),
        "choices": [choice],
        "usage": answer.usage or usage_of(request, content),
    }


# ── the server ───────────────────────────────────────────────────────────────────────────────────────────────


class _Connection(asyncio.Protocol):
    def __init__(self, server: ScriptedModel) -> None:
        self.server = server
        self.buffer = b""
        self.transport: asyncio.Transport | None = None
        self.pending: asyncio.TimerHandle | None = None
        self.is_busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.server._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.pending is not None:
            self.pending.cancel()
        self.server._closed(self)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if not self.is_busy:
            self._next_request()

    def _next_request(self) -> None:
        end = self.buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        first, *lines = self.buffer[:end].decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        stop = end + 4 + int(headers.get("content-length", "0"))
        if len(self.buffer) < stop:
            return
        body, self.buffer = self.buffer[end + 4 : stop], self.buffer[stop:]
        self.is_busy = True
        method, path, _ = first.split(" ", 2)
        self.server._asked(self, f"{method} {path}", headers, body)

    def send(
        self, status: int, body: bytes, *, headers: dict[str, str] | None = None, cut: Cut | None = None
    ) -> None:
        if self.transport is None or self.transport.is_closing():
            return
        extra = "".join(f"{k}: {v}\r\n" for k, v in (headers or {}).items())
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
        whole = head.encode("latin-1") + body
        self.transport.write(whole if cut is None else whole[: cut.after_bytes])
        self.is_busy = False
        if cut is not None:
            self.transport.close()
        elif self.buffer:
            self._next_request()


class ScriptedModel:
    """The server in a thread of its own. `url` is the model's name as `connect` takes it."""

    def __init__(
        self,
        script: Script = echo_schema,
        *,
        latency_seconds: float = 0.0,
        model: str = "scripted",
        port: int = 0,
        keep_requests: bool = True,
    ) -> None:
        self.script = script
        self.latency_seconds = latency_seconds
        self.model = model
        self.port = port
        self.keep_requests = keep_requests
        self.requests: list[JsonObject] = []
        self.headers: list[dict[str, str]] = []
        self.calls = 0
        self.in_flight = 0
        self.peak_in_flight = 0
        self.abandoned = 0  # requests whose client went away before the answer
        self.connections = 0
        self.connections_made = 0
        self._changed = threading.Condition()
        self._live: set[_Connection] = set()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def url(self) -> str:
        return f"{self.base_url}#{self.model}"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self.serve()), name="scripted-model", daemon=True
        )
        self._thread.start()
        if not self._ready.wait(10):
            raise RuntimeError("the scripted model did not start within 10 s")

    def stop(self) -> None:
        if self._loop is not None and self._stop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)

    def wait_until(self, holds: Callable[[ScriptedModel], bool], timeout_seconds: float = 10) -> bool:
        """Waits until something is true of this server, for example `lambda m: m.in_flight == 3`."""
        with self._changed:
            return self._changed.wait_for(lambda: holds(self), timeout_seconds)

    async def serve(self, on_ready: Callable[[ScriptedModel], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        server = await self._loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, backlog=1024
        )
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        if on_ready is not None:
            on_ready(self)
        await self._stop.wait()
        server.close()
        for connection in list(self._live):
            if connection.transport is not None:
                connection.transport.abort()

    def _opened(self, connection: _Connection) -> None:
        with self._changed:
            self._live.add(connection)
            self.connections += 1
            self.connections_made += 1
            self._changed.notify_all()

    def _closed(self, connection: _Connection) -> None:
        with self._changed:
            self._live.discard(connection)
            self.connections -= 1
            if connection.is_busy:
                self.in_flight -= 1
                self.abandoned += 1
            self._changed.notify_all()

    def _asked(self, connection: _Connection, what: str, headers: dict[str, str], body: bytes) -> None:
        if what == "GET /v1/models":
            connection.send(
                200, json.dumps({"object": "list", "data": [{"id": self.model, "object": "model"}]}).encode()
            )
            return
        if what != "POST /v1/chat/completions":
            connection.send(404, json.dumps({"error": {"message": f"no such endpoint: {what}"}}).encode())
            return
        request = json.loads(body)
        with self._changed:
            n = self.calls
            self.calls += 1
            self.in_flight += 1
            self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
            if self.keep_requests:
                self.requests.append(request)
                self.headers.append(headers)
            self._changed.notify_all()
        try:
            reply = self.script(request, n)
        except Exception as error:  # noqa: BLE001  # whatever a test's script does wrong is an answer of 500
            reply = Fault(500, {"error": {"message": f"the script failed: {error!r}"}})
        self._answer_later(connection, request, n, reply)

    def _answer_later(self, connection: _Connection, request: JsonObject, n: int, reply: Reply) -> None:
        latency = self.latency_seconds
        if isinstance(reply, Answer) and reply.latency_seconds is not None:
            latency = reply.latency_seconds
        if isinstance(reply, Hang):
            return
        if latency <= 0:
            self._answer(connection, request, n, reply)
            return
        assert self._loop is not None
        connection.pending = self._loop.call_later(latency, self._answer, connection, request, n, reply)

    def _answer(self, connection: _Connection, request: JsonObject, n: int, reply: Reply) -> None:
        with self._changed:
            self.in_flight -= 1
            self._changed.notify_all()
        if isinstance(reply, Raw):
            connection.is_busy = False
            assert connection.transport is not None
            connection.transport.write(reply.data)
            connection.transport.close()
        elif isinstance(reply, Fault):
            body = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
            connection.send(reply.status, body.encode(), headers=reply.headers)
        elif isinstance(reply, Cut):
            connection.send(200, json.dumps(completion(request, n, "cut")).encode(), cut=reply)
        else:
            assert not isinstance(reply, Hang)
            connection.send(200, json.dumps(completion(request, n, reply)).encode())


RULES: dict[str, Script] = {
    "echo_schema": echo_schema,
    "hashed_schema": hashed_schema,
    "hang": always(Hang()),
}


def rule(text: str) -> Script:
    """A script by name, or `text:WORDS` for a fixed answer, or `cells:FILE` for blocks parted by lines of `# %%`."""
    kind, _, rest = text.partition(":")
    if kind == "text":
        return always(rest)
    if kind == "cells":
        source = Path(rest).read_text(encoding="utf-8")
        return cells(*(block.strip() for block in source.split("# %%") if block.strip()))
    return RULES[text]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument(
        "--rule", default="echo_schema", help="echo_schema | hashed_schema | hang | text:WORDS | cells:FILE"
    )
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--model", default="scripted")
    options = parser.parse_args(argv)
    server = ScriptedModel(
        rule(options.rule),
        latency_seconds=options.latency,
        model=options.model,
        port=options.port,
        keep_requests=False,
    )
    asyncio.run(
        server.serve(lambda ready: print(json.dumps({"url": ready.url, "port": ready.port}), flush=True))
    )


if __name__ == "__main__":
    main()
