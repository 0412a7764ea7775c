"""One thread that waits for changes of the store, for everybody who follows something. It says that something changed, no more."""

import asyncio
import logging
import threading
import time
from contextlib import suppress

from controlplane.errors import ControlPlaneError
from controlplane.ports import Store, Watch

log = logging.getLogger(__name__)

_WAIT_SECONDS = 0.25
#: Followers look at least so often: not every store tells of every record.
_LOOK_SECONDS = 1.0
#: Least time between two looks of all who follow.
_PACE_SECONDS = 0.02
_AGAIN_SECONDS = 1.0


class Ticket:
    """A place in the crowd, taken before looking: what is committed after that wakes it."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.event = asyncio.Event()

    async def wait(self, *, seconds: float) -> bool:
        """Return when something was committed; False when nothing was for so long."""
        try:
            await asyncio.wait_for(self.event.wait(), seconds)
        except TimeoutError:
            return False
        return True


class Followers:
    """Those who wait for a change. The thread sleeps while there is nobody."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._waiting: set[Ticket] = set()
        self._wanted = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_closed(self) -> bool:
        return self._stopped.is_set()

    def ticket(self) -> Ticket:
        ticket = Ticket()
        with self._lock:
            self._waiting.add(ticket)
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._run, name="followers", daemon=True)
                self._thread.start()
        self._wanted.set()
        return ticket

    def drop(self, ticket: Ticket) -> None:
        with self._lock:
            self._waiting.discard(ticket)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._store.watch() as watch:
                    self._watch(watch)
            except ControlPlaneError:
                log.warning("the store cannot be watched: those who follow look by themselves", exc_info=True)
                self._stopped.wait(_AGAIN_SECONDS)
                self._wake()

    def _watch(self, watch: Watch) -> None:
        woken = 0.0
        watch.read("", steer_seen=0)
        while not self._stopped.is_set():
            # What is committed while nobody waits is found by the first wait after that.
            self._wanted.wait()
            is_changed = watch.wait(timeout=_WAIT_SECONDS)
            if is_changed:
                watch.read("", steer_seen=0)
            if is_changed or time.monotonic() - woken > _LOOK_SECONDS:
                self._wake()
                woken = time.monotonic()
                self._stopped.wait(_PACE_SECONDS)

    def _wake(self) -> None:
        with self._lock:
            woken, self._waiting = self._waiting, set()
            self._wanted.clear()
        for ticket in woken:
            with suppress(RuntimeError):  # its loop is closed: nobody waits there any more
                ticket.loop.call_soon_threadsafe(ticket.event.set)

    def close(self) -> None:
        """Let everybody go."""
        self._stopped.set()
        self._wake()
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
