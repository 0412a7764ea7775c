"""The threads that answer: so many at work, so many waiting, and everybody else is told to come back."""

from collections.abc import Callable
from typing import TypeVar

import anyio
import anyio.to_thread

from controlplane.api.problems import Busy

Answer = TypeVar("Answer")


class Pool:
    """A bounded number of threads with a bounded queue. Belongs to one event loop."""

    def __init__(self, *, threads: int, waiting: int) -> None:
        self._limiter = anyio.CapacityLimiter(threads)
        self._most = threads + waiting
        self.under_way = 0

    async def run(self, act: Callable[[], Answer]) -> Answer:
        """Run something that blocks. What has begun is not abandoned: it may be in the middle of a transaction."""
        if self.under_way >= self._most:
            raise Busy("everybody who could answer is at work: ask again in a moment")
        self.under_way += 1
        try:
            return await anyio.to_thread.run_sync(act, limiter=self._limiter, abandon_on_cancel=False)
        finally:
            self.under_way -= 1
