"""Whether a job tree has to wait for something outside, and which of its model calls are still under way."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from rlm_worker.errors import MustPark


class Waiting:
    """Once somebody must wait, no new call leaves, and those under way are let finish: they are paid for already."""

    def __init__(self) -> None:
        self._park: MustPark | None = None
        self._under_way = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def is_wanted(self) -> bool:
        return self._park is not None

    def check(self) -> None:
        """Raise MustPark when the tree has to wait."""
        if self._park is not None:
            raise self._park

    def must(self, park: MustPark) -> MustPark:
        """The tree has to wait. The longest wait stands."""
        if self._park is None or _later(park, self._park):
            self._park = park
        return self._park

    @contextmanager
    def call(self) -> Iterator[None]:
        """One model call."""
        self._under_way += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._under_way -= 1
            if self._under_way == 0:
                self._quiet.set()

    async def quiet(self) -> None:
        """Until no call is under way."""
        await self._quiet.wait()


def _later(one: MustPark, other: MustPark) -> bool:
    return one.not_before is not None and other.not_before is not None and one.not_before > other.not_before
