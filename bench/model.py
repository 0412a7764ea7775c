"""The scripted model in a process of its own, so that it has another core than the worker."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def scripted_model(*, rule: str = "echo_schema", latency_seconds: float = 0.0) -> Iterator[str]:
    """Serve on loopback; gives the model's name as a job takes it."""
    command = [
        sys.executable,
        "-m",
        "tests.scripted_model",
        "--rule",
        rule,
        "--latency",
        str(latency_seconds),
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url: str = json.loads(server.stdout.readline())["url"]
        yield url
    finally:
        server.kill()
        server.communicate()
