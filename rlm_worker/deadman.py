"""Ends the sandboxes of a worker that is frozen past its leases: a small process that the worker must keep telling how long to wait.

A frozen worker cannot kill anything, and its cells would run on beside those of the next attempt. The helper is told, several
times a second, until when the earliest lease is trusted; when that time comes and nothing was heard, it kills the processes
whose death ends every sandbox. It has no credentials, no files, and ends with the worker.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import sandbox

_TICK_SECONDS = 0.2
#: The worker's own fence comes first, while it is able to.
_AFTER_SECONDS = 0.05

_HELPER = """
import json, os, select, signal, time
waiting, pids, until = b"", {}, None
while True:
    left = None if until is None else max(0.0, until - time.monotonic())
    if select.select([0], [], [], left)[0]:
        said = os.read(0, 65536)
        if not said:
            break
        waiting += said
        *lines, waiting = waiting.split(b"\\n")
        if lines:
            told = json.loads(lines[-1])
            until = told["until"]
            for pid in set(told["pids"]) - set(pids):
                try:
                    pids[pid] = os.pidfd_open(pid)
                except ProcessLookupError:
                    pass
            for pid in set(pids) - set(told["pids"]):
                os.close(pids.pop(pid))
        continue
    until = None
    for descriptor in pids.values():
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            pass
"""


class DeadMan:
    """One per worker process; its helper is started with the first lease."""

    def __init__(self, lifelines: Callable[[], tuple[int, ...]] = sandbox.lifelines) -> None:
        self._lifelines = lifelines
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """A fork has no leases and no threads, and a lock that another thread held would never be free in it."""
        self._lock = threading.Lock()
        self._until: dict[int, float] = {}
        self._ticking: threading.Thread | None = None

    def trust(self, lease: int, until: float | None) -> None:
        """Until when a lease is trusted, on the monotonic clock; None: it is over. `lease`: any number of its own."""
        with self._lock:
            if until is None:
                self._until.pop(lease, None)
                return
            self._until[lease] = until
            if self._ticking is None:
                self._ticking = threading.Thread(target=self._tick, name="custody-deadman", daemon=True)
                self._ticking.start()

    def _tick(self) -> None:
        helper = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _HELPER],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={},
            # Whatever stops the worker, a key on its terminal for example, does not stop this.
            start_new_session=True,
        )
        assert helper.stdin is not None
        wire = helper.stdin.fileno()
        try:
            while helper.poll() is None:
                with self._lock:
                    earliest = min(self._until.values(), default=None)
                # A lease that is lost while the worker lives is the worker's own fence's to act on.
                now = time.monotonic()
                until = None if earliest is None else max(earliest, now + 2 * _TICK_SECONDS) + _AFTER_SECONDS
                told = {"until": until, "pids": self._lifelines()}
                os.write(wire, json.dumps(told).encode() + b"\n")
                time.sleep(_TICK_SECONDS)
        except BrokenPipeError:
            pass
        finally:
            with self._lock:
                # The next lease starts another one.
                self._ticking = None
            helper.stdin.close()
            helper.wait()


PROCESS = DeadMan()
