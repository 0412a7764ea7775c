"""Real sessions for the tests: opened, run to the end, and gone afterwards."""

from collections.abc import Callable
from contextlib import asynccontextmanager

import sandbox
from sandbox import Finished, HostCall, Output, Policy, Session


class Box:
    """A session with a shorthand: run a cell to its end, answering calls from a table."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.calls: list[HostCall] = []
        self.outputs: list[Output] = []

    async def run(self, code: str, *, deadline: float = 20.0, answer: Callable | None = None) -> Finished:
        async for event in self.session.execute(code, deadline_seconds=deadline):
            if isinstance(event, HostCall):
                self.calls.append(event)
                value = event.payload if answer is None else answer(event)
                await self.session.answer(event.call_id, value)
            elif isinstance(event, Output):
                self.outputs.append(event)
            else:
                finished = event
        return finished

    async def value(self, code: str, **options) -> str:
        finished = await self.run(code, **options)
        assert finished.outcome == "ok", finished
        return finished.stdout.strip()


@asynccontextmanager
async def a_box(**policy):
    session = await sandbox.open_session(Policy(**policy))
    try:
        yield Box(session)
    finally:
        await session.close()
