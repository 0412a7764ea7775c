"""Confined guests kept ready, by shape: each is handed out once and replaced in the background. Makes none itself."""

import asyncio
import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from sandbox.backends.port import Guest
from sandbox.errors import SandboxError

_log = logging.getLogger(__name__)
_RETRY_MILLISECONDS = 1_000
_BREATH_SECONDS = 0.005  # whoever took a guest gets going before the next is made beside it

Shape = TypeVar("Shape")
Kept = TypeVar("Kept", bound=Guest)


class Pool(Generic[Shape, Kept]):
    """Guests of some shapes, ready. A shape is all that is decided about a guest before it is known what for.

    Belongs to the process that made it: guests of a parent are nothing to a forked child, who makes a pool of its own.
    """

    def __init__(self, make: Callable[[Shape], Kept]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._sizes: dict[Shape, int] = {}
        self._ready: dict[Shape, list[Kept]] = {}
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._keeper: threading.Thread | None = None
        self._is_closed = False

    def keep(self, shape: Shape, size: int) -> None:
        """Keep so many guests of a shape ready from now on; with 0, none."""
        with self._lock:
            self._sizes[shape] = size
            if self._keeper is None and not self._is_closed:
                self._keeper = threading.Thread(target=self._keep, daemon=True, name="sandbox-pool")
                self._keeper.start()
        self._rouse()

    def take(self, shape: Shape) -> Kept | None:
        """Return a living guest, which is the caller's from now on, or None when there is none."""
        taken = None
        with self._lock:
            shelf = self._ready.get(shape, [])
            while shelf and taken is None:
                taken = shelf.pop(0)
                if _is_gone(taken):
                    threading.Thread(target=_bury, args=(taken,), daemon=True).start()
                    taken = None
        if shape in self._sizes:
            self._rouse()
        return taken

    def ready(self, shape: Shape) -> int:
        """Return how many guests of a shape stand ready."""
        with self._lock:
            return len(self._ready.get(shape, []))

    def close(self) -> None:
        """Kill every guest that was not handed out, and make no more."""
        with self._lock:
            self._is_closed = True
            self._sizes.clear()
            keeper = self._keeper
        self._rouse()
        if keeper is not None:
            keeper.join(_RETRY_MILLISECONDS / 1000)

    def _rouse(self) -> None:
        os.eventfd_write(self._wake, 1)

    # ---------------------------------------------------------------- the keeper's thread

    def _keep(self) -> None:
        """Bury the dead, drop what is too much, make what is missing; then wait until one of these is so again."""
        while True:
            for guest in self._superfluous():
                guest.kill()
                _bury(guest)
            if self._is_closed:
                return
            wait = self._make_one()
            if wait != 0:
                self._rest(wait)

    def _superfluous(self) -> list[Kept]:
        found: list[Kept] = []
        with self._lock:
            for shape, shelf in self._ready.items():
                living = [guest for guest in shelf if not _is_gone(guest)]
                kept = living[: self._sizes.get(shape, 0)]
                found += [guest for guest in shelf if guest not in kept]
                self._ready[shape] = kept
        return found

    def _make_one(self) -> int | None:
        """Make one guest that is missing. Return the milliseconds until the next is tried, None for when roused."""
        with self._lock:
            missing = [shape for shape, size in self._sizes.items() if len(self._ready.get(shape, [])) < size]
        if not missing:
            return None
        try:
            guest = self._make(missing[0])
        except (SandboxError, OSError) as error:
            # A session opened meanwhile meets the same trouble and reports it: nothing is hidden here.
            _log.warning("no sandbox could be made for the pool, tried again in a second: %s", error)
            return _RETRY_MILLISECONDS
        with self._lock:
            self._ready.setdefault(missing[0], []).append(guest)
        return 0

    def _rest(self, milliseconds: int | None) -> None:
        waiter = select.poll()
        waiter.register(self._wake, select.POLLIN)
        with self._lock:
            for shelf in self._ready.values():
                for guest in shelf:
                    waiter.register(guest.gone, select.POLLIN)
        waiter.poll(milliseconds)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
            time.sleep(_BREATH_SECONDS)


def _is_gone(guest: Guest) -> bool:
    waiter = select.poll()
    waiter.register(guest.gone, select.POLLIN)
    return bool(waiter.poll(0))


def _bury(guest: Guest) -> None:
    """Wait for a dying guest's end, let its backend clean up after it, and let it go."""
    waiter = select.poll()
    waiter.register(guest.gone, select.POLLIN)
    waiter.poll(_RETRY_MILLISECONDS)
    asyncio.run(_last_word(guest))
    guest.release()


async def _last_word(guest: Guest) -> None:
    await guest.ending()
