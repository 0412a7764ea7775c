"""What the control plane wants of one attempt, as its event loop sees it."""

import asyncio
import time
from collections.abc import Callable

from rlm_worker.contracts.gateway import RenewAnswer, Retune, Steer


class Orders:
    """Futures for what ends the attempt, a list of steers, and whoever must know of other limits."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.stop: asyncio.Future[RenewAnswer] = loop.create_future()
        #: Set when there is no grace, or none any more.
        self.kill: asyncio.Future[RenewAnswer] = loop.create_future()
        self.pause: asyncio.Future[RenewAnswer] = loop.create_future()
        self.lost: asyncio.Future[str] = loop.create_future()
        #: Called with limits that replace those in force.
        self.on_retune: Callable[[Retune], None] = lambda _: None
        self._heard: dict[str, float] = {}
        self._steers: list[Steer] = []

    def hear(self, answer: RenewAnswer, *, at: float | None = None) -> None:
        """`at`: the monotonic time at which it arrived in this process."""
        self._steers.extend(answer.steers)
        if answer.retune is not None:
            self.on_retune(answer.retune)
        if answer.desired != "run":
            self._heard.setdefault(answer.desired, time.monotonic() if at is None else at)
        if answer.desired in ("stop", "kill") and not self.stop.done():
            self.stop.set_result(answer)
        if answer.desired == "kill" and not self.kill.done():
            self.kill.set_result(answer)
        if answer.desired == "pause" and not self.pause.done():
            self.pause.set_result(answer)

    def waited_ms(self, desired: str) -> int:
        """How long ago an order was heard."""
        heard = self._heard.get(desired)
        return 0 if heard is None else max(0, int((time.monotonic() - heard) * 1000))

    def lose(self, why: str) -> None:
        if not self.lost.done():
            self.lost.set_result(why)

    def take_steers(self) -> tuple[Steer, ...]:
        taken, self._steers = tuple(self._steers), []
        return taken
