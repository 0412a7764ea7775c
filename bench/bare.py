"""The least a client can do: the same requests over kept-alive sockets, answers thrown away. No journal, no types, no sandbox."""

import asyncio
import json
import time
from urllib.parse import urlsplit


class _Lane(asyncio.Protocol):
    """One connection that asks again as soon as it is answered."""

    def __init__(self, requests: list[bytes], done: "asyncio.Future[None]") -> None:
        self._requests, self._done, self._buffer = requests, done, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def ask(self) -> None:
        if self._requests:
            self._transport.write(self._requests.pop())
        else:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if end and len(body) >= int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]):
            self._buffer = b""
            self.ask()

    def connection_lost(self, _error: Exception | None) -> None:
        if not self._done.done():
            self._done.set_result(None)


def ask_all(url: str, *, requests: int, in_flight: int) -> float:
    """Seconds for so many small typed requests."""
    place = urlsplit(url)
    schema = {
        "type": "object",
        "properties": {"severity": {"enum": ["low", "high"]}, "retry": {"type": "boolean"}},
    }
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    said = [{"role": "system", "content": "s" * 140}, {"role": "user", "content": "u" * 230}]
    body = json.dumps(
        {"model": place.fragment, "messages": said, "max_tokens": 96, "response_format": form}
    ).encode()
    head = f"POST {place.path}/chat/completions HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
    queue = [head.encode() + body] * requests

    async def run() -> float:
        loop = asyncio.get_running_loop()
        ends = [loop.create_future() for _ in range(in_flight)]
        lanes = [
            (await loop.create_connection(lambda end=end: _Lane(queue, end), place.hostname, place.port))[1]
            for end in ends
        ]
        began = time.perf_counter()
        for lane in lanes:
            lane.ask()
        await asyncio.gather(*ends)
        return time.perf_counter() - began

    return asyncio.run(run())
