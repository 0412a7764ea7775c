"""A fresh box for a test; without namespaces all of them skip and say why."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import sandbox
from tests.boxes import Box, a_box


@pytest.fixture(autouse=True, scope="session")
def _namespaces_work():
    report = sandbox.probe()
    if not report.usable:
        pytest.skip(f"no namespaces here: {'; '.join(report.advice)}")


@pytest.fixture
def in_box():
    """Run an async story in a fresh box."""

    def play(story: Callable[[Box], Awaitable[None]], **policy) -> None:
        async def main() -> None:
            async with a_box(**policy) as box:
                await story(box)

        asyncio.run(main())

    return play
