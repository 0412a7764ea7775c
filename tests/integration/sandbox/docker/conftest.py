"""Real containers for the tests, over both runtimes; without an engine they skip and say why."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import sandbox
from sandbox import Finished, HostCall, Output, Policy, Session
from sandbox.backends.docker import engine as engines
from sandbox.backends.docker import owners


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


class Box:
    """A session with a shorthand: run a cell to its end, answering calls with what they carry."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.calls: list[HostCall] = []

    async def run(self, code: str, *, deadline: float = 30.0, answer: Callable | None = None) -> Finished:
        async for event in self.session.execute(code, deadline_seconds=deadline):
            if isinstance(event, HostCall):
                self.calls.append(event)
                value = event.payload if answer is None else answer(event)
                await self.session.answer(event.call_id, value)
            elif not isinstance(event, Output):
                finished = event
        return finished

    async def value(self, code: str, **options) -> str:
        finished = await self.run(code, **options)
        assert finished.outcome == "ok", finished
        return finished.stdout.strip()


@asynccontextmanager
async def a_box(runtime: str, **policy):
    session = await sandbox.open_session(Policy(backend="docker", runtime=runtime, **policy))
    try:
        yield Box(session)
    finally:
        await session.close()


@pytest.fixture
def in_box(runtime):
    """Run an async story in a fresh container."""

    def play(story: Callable[[Box], Awaitable[None]], **policy) -> None:
        async def main() -> None:
            async with a_box(runtime, **policy) as box:
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
