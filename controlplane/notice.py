"""How the threads of one process learn at once that something changed. Across processes nobody is told: they look."""

import threading


class Notice:
    """Tells the threads of this process that something was committed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    def announce(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait(self, seen: int, *, timeout: float) -> bool:
        """Wait until something was announced after `seen`."""
        with self._changed:
            return self._changed.wait_for(lambda: self._count != seen, timeout=timeout)
