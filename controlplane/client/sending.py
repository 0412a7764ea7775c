"""How a request becomes one of httpx2, and what its failures mean. Shared by both transports."""

from typing import Any

import httpx2

from controlplane.client.calls import Call
from controlplane.client.errors import Unreachable

#: A server says something at least this often on a stream, if only that it is there.
STREAM_SECONDS = 60.0


def arguments(call: Call[Any]) -> dict[str, Any]:
    return {
        "method": call.method,
        "url": call.path,
        "params": list(call.query) or None,
        "headers": dict(call.headers),
        "content": call.content,
    }


def unreachable(server: str, error: httpx2.TransportError) -> Unreachable:
    """No answer came; whether the request got there depends on how it broke."""
    was_sent = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
    words = str(error) or type(error).__name__
    problem = Unreachable(
        f"no answer from {server}: {words}. Is it running, and is the address right? See: custody doctor --server {server}"
    )
    problem.was_sent = was_sent
    return problem
