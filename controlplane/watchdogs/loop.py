"""The only `while` of the watchdogs: runs a check again and again in a thread of its own."""

import logging
import threading
from collections.abc import Callable

from controlplane.notice import Notice

log = logging.getLogger(__name__)


class Loop:
    """Calls `run_once` every `interval` seconds, and at once when something was announced. Starting or stopping twice is fine."""

    def __init__(
        self, name: str, run_once: Callable[[], object], *, interval: float, notice: Notice | None = None
    ) -> None:
        self._name = name
        self._run_once = run_once
        self._interval = interval
        self._notice = notice or Notice()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._turn, name=self._name, daemon=True)
            self._thread.start()

    def stop(self, *, timeout: float = 5.0) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stopping.set()
            self._notice.announce()
            thread.join(timeout)

    def _turn(self) -> None:
        while not self._stopping.is_set():
            seen = self._notice.count
            try:
                self._run_once()
            except Exception:
                # A watchdog outlives every failure of what it watches, and says so each time.
                log.exception("watchdog_failed", extra={"watchdog": self._name})
            self._notice.wait(seen, timeout=self._interval)
