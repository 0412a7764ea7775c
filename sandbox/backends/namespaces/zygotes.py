"""The zygote of this process: started when first needed, replaced when it is found dead. Thread-safe."""

import contextlib
import os
import threading
from pathlib import Path

from sandbox.backends.namespaces.plan import Plan
from sandbox.backends.namespaces.zygote_client import Guest, Zygote
from sandbox.errors import SandboxUnavailable


class Zygotes:
    """Zygotes of one program, one at a time; a forked worker starts its own."""

    def __init__(self, program: Path) -> None:
        self._program = program
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """A lock that another thread of the parent held would never be free in the child."""
        self._lock = threading.Lock()
        self._current: Zygote | None = None

    def current(self) -> Zygote:
        """Return the running zygote, starting or restarting it."""
        with self._lock:
            if self._current is None or self._current.is_ended.is_set():
                self._current = Zygote(self._program)
            return self._current

    def warm(self) -> None:
        """Start the zygote beside what the caller does next. Why it would not start is told by the first session."""

        def start() -> None:
            with contextlib.suppress(SandboxUnavailable, OSError):
                self.current()

        threading.Thread(target=start, daemon=True, name="sandbox-warm").start()

    def spawn(self, plan: Plan) -> Guest:
        """Return a confined guest; a zygote found dead is replaced once."""
        asked = self.current()
        try:
            return asked.spawn(plan)
        except ConnectionError:
            asked.close()
            asked.is_ended.set()
        try:
            return self.current().spawn(plan)
        except ConnectionError:
            raise SandboxUnavailable(
                "the zygote died while it made a sandbox, twice", layer="zygote"
            ) from None

    def bring_in(self, guest: Guest, plan: Plan) -> None:
        """Give a pooled guest its evidence, or raise: a guest is never used without."""
        try:
            self.current().bring_in(guest, plan)
        except OSError as error:
            raise SandboxUnavailable(
                f"evidence could not be brought into a ready sandbox: {error}", layer="late-evidence"
            ) from None
        guest.forget_namespaces()
