"""Real containers for the tests, over both runtimes; without an engine they skip and say why."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import sandbox
from sandbox.backends.docker import engine as engines
from sandbox.backends.docker import owners
from tests.boxes import Box, a_box


def pytest_collection_modifyitems(items):
    """Mark what lies in this folder: the hook is handed every test of the run."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.docker)


@pytest.fixture(params=["runc", "runsc"])
def runtime(request) -> str:
    report = sandbox.probe("docker", request.param)
    if not report.usable:
        pytest.skip(f"no container by {request.param} here: {'; '.join(report.advice)}")
    return request.param


@pytest.fixture
def in_box(runtime):
    """Run an async story in a fresh container."""

    def play(story: Callable[[Box], Awaitable[None]], **policy) -> None:
        async def main() -> None:
            async with a_box(backend="docker", runtime=runtime, **policy) as box:
                await story(box)

        asyncio.run(main())

    return play


class Containers:
    """The containers that this process has made and that are still known to the engine."""

    def ids(self) -> list[str]:
        engine = engines.current()
        own = owners.labels()[owners.LABEL]
        return [found["Id"] for found in engine.containers(f"{owners.LABEL}={own}")]

    def wait_until_none(self, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while left := self.ids():
            assert time.monotonic() < deadline, f"containers are left: {left}"
            time.sleep(0.05)


@pytest.fixture
def own_containers(runtime) -> Containers:
    return Containers()
