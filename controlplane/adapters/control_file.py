"""Orders beside the database: one file that is only appended to, so that a locked database delays no stop.

Each line is one JSON object, written by one `write` and synced. A line begins with a line break, so that a torn one spoils
only itself. What was entered in the database is marked by a further line.
"""

import fcntl
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from controlplane.adapters.private_files import make_file
from controlplane.domain.commands import Order
from controlplane.ports_control import SideOrder

#: How often the file is looked at for what other processes wrote.
_LOOK_SECONDS = 0.01
#: Entered orders are thrown away when the file is larger than this.
_KEPT_BYTES = 1 << 20
_STRENGTH: dict[Order, int] = {"pause": 1, "stop": 2, "kill": 3}


class ControlFile:
    """Safe to use from several threads and processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        make_file(path)
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        self._lock = threading.Lock()
        self._pending: dict[str, SideOrder] = {}
        self._read_to = 0
        self._closing = threading.Event()
        self._listener: threading.Thread | None = None
        self._look()
        self._shorten()

    def put(
        self, *, order: Order, by: str, reason: str, jobs: Sequence[str], switch: dict[str, Any] | None = None
    ) -> SideOrder | None:
        made = SideOrder(
            mark=secrets.token_hex(16),
            order=order,
            by=by,
            reason=reason,
            at_ms=time.time_ns() // 1_000_000,
            jobs=tuple(jobs),
            switch=switch,
        )
        self._append(asdict(made))
        return made

    def entered(self, marks: Sequence[str]) -> None:
        if marks:
            self._append({"entered": list(marks)})

    def _append(self, body: dict[str, Any]) -> None:
        line = b"\n" + json.dumps(body).encode() + b"\n"
        # Shared, so that nobody who writes waits for another: it only keeps the file from being shortened meanwhile.
        is_locked = _try_lock(self._file, fcntl.LOCK_SH)
        try:
            os.write(self._file, line)
            os.fsync(self._file)
        finally:
            if is_locked:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def pending(self) -> list[SideOrder]:
        self._look()
        with self._lock:
            return list(self._pending.values())

    def of(self, job_id: str) -> SideOrder | None:
        found = [order for order in self.pending() if job_id in order.jobs]
        return max(found, key=lambda order: _STRENGTH[order.order], default=None)

    def _look(self) -> bool:
        """Read what is new; whether there was anything."""
        with self._lock:
            size = os.fstat(self._file).st_size
            if size == self._read_to:
                return False
            if size < self._read_to:
                self._read_to = 0
            fresh = os.pread(self._file, size - self._read_to, self._read_to)
            # A line that is not whole yet is read with what follows it.
            whole = fresh.rfind(b"\n") + 1
            self._read_to += whole
            for line in filter(None, fresh[:whole].split(b"\n")):
                self._take(line)
            return whole > 0

    def _take(self, line: bytes) -> None:
        try:
            body = json.loads(line)
            if "entered" in body:
                for mark in body["entered"]:
                    self._pending.pop(mark, None)
            else:
                order = SideOrder(**{**body, "jobs": tuple(body["jobs"])})
                self._pending[order.mark] = order
        except (ValueError, TypeError, KeyError):
            # Torn by a crash in the middle of writing it: whoever gave that order was never told that it stands.
            return

    def _shorten(self) -> None:
        """Throw away what was entered, when nobody is writing."""
        if os.fstat(self._file).st_size <= _KEPT_BYTES or not _try_lock(self._file, fcntl.LOCK_EX):
            return
        try:
            self._look()
            with self._lock:
                if not self._pending:
                    os.ftruncate(self._file, 0)
                    self._read_to = 0
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def listen(self, announce: Callable[[], None]) -> None:
        with self._lock:
            if self._listener is None:
                self._listener = threading.Thread(
                    target=self._listen, args=(announce,), name="custody-control-file", daemon=True
                )
                self._listener.start()

    def _listen(self, announce: Callable[[], None]) -> None:
        size = -1
        while not self._closing.wait(_LOOK_SECONDS):
            now = os.fstat(self._file).st_size
            if now != size:
                size = now
                announce()

    def close(self) -> None:
        self._closing.set()
        if self._listener is not None:
            self._listener.join()
        os.close(self._file)


def _try_lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class NoControlFile:
    """For databases where nobody can hold up a stop: orders go there alone."""

    def put(
        self,
        *,
        order: Order,  # noqa: ARG002 - part of the port
        by: str,  # noqa: ARG002
        reason: str,  # noqa: ARG002
        jobs: Sequence[str],  # noqa: ARG002
        switch: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> SideOrder | None:
        return None

    def pending(self) -> list[SideOrder]:
        return []

    def of(self, job_id: str) -> SideOrder | None:  # noqa: ARG002 - part of the port
        return None

    def entered(self, marks: Sequence[str]) -> None:
        pass

    def listen(self, announce: Callable[[], None]) -> None:
        pass

    def close(self) -> None:
        pass
