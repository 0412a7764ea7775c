"""How the threads of one process learn at once that something changed. Other processes are told by the store, if at all."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Notice:
    """Tells the threads of this process that something was committed."""

    def __init__(self, on_wait: Callable[[], None] | None = None) -> None:
        """`on_wait` is called before anybody waits: somebody must carry the news of other processes then."""
        self._on_wait = on_wait
        self._changed = threading.Condition()
        self._count = 0
        self._waiting: dict[str, set[threading.Event]] = {}

    @property
    def count(self) -> int:
        return self._count

    def announce(self, about: str = "") -> None:
        """Something changed: about one job, or about anything when none is named."""
        with self._changed:
            self._count += 1
            self._changed.notify_all()
            told = [self._waiting.get(about, set())] if about else list(self._waiting.values())
            for event in (event for events in told for event in events):
                event.set()

    def wait(self, seen: int, *, timeout: float) -> bool:
        """Wait until something was announced after `seen`."""
        if self._on_wait is not None:
            self._on_wait()
        with self._changed:
            return self._changed.wait_for(lambda: self._count != seen, timeout=timeout)

    @contextmanager
    def about(self, name: str) -> Iterator[threading.Event]:
        """An event that is set by each announcement about this name, and by those about anything."""
        event = threading.Event()
        with self._changed:
            self._waiting.setdefault(name, set()).add(event)
        try:
            yield event
        finally:
            with self._changed:
                self._waiting[name].discard(event)
                if not self._waiting[name]:
                    del self._waiting[name]
