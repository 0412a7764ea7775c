"""One embedded-model server per machine and model: found and shared when it runs, started when it does not.

A user is whoever holds the users' lock; the server ends itself a few seconds after the last one, however that one ended.
"""

import fcntl
import json
import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from rlm_worker.models.errors import ModelUnavailable
from rlm_worker.models.processes import boot_id, start_time

START_SECONDS = 180.0
POLL_SECONDS = 0.05

OnStart = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Hosting:
    """Which file is served under which name, and how."""

    name: str
    file: Path
    folder: Path
    threads: int
    context_tokens: int
    slots: int
    linger_seconds: float = 5.0

    @property
    def state(self) -> Path:
        return self.folder / f".{self.name}.server.json"

    @property
    def users(self) -> Path:
        return self.folder / f".{self.name}.users"

    @property
    def log(self) -> Path:
        return self.folder / f".{self.name}.server.log"


@dataclass(frozen=True, kw_only=True, slots=True)
class _State:
    pid: int
    started: int
    boot_id: str
    url: str
    key: str

    def is_alive(self) -> bool:
        return self.boot_id == boot_id() and start_time(self.pid) == self.started


class Use:
    """One user's hold on a running server; released by `release`, or by the end of the process."""

    def __init__(self, lock: int, state: _State) -> None:
        self._lock: int | None = lock
        self._state = state
        self.url = state.url
        self.key = SecretStr(state.key)
        self.pid = state.pid

    def is_alive(self) -> bool:
        return self._state.is_alive()

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def acquire(hosting: Hosting, *, on_start: OnStart) -> Use:
    """A hold on the server of this model, started if need be. Blocks for as long as the model takes to load."""
    hosting.folder.mkdir(parents=True, exist_ok=True)
    with _alone(hosting):
        lock = os.open(hosting.users, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)  # waits while an ending server still holds it alone
            state = _running(hosting)
            if state is None:
                on_start(f"starting {hosting.name} ({hosting.threads} threads)")
                state = _start(hosting)
            return Use(lock, state)
        except BaseException:
            os.close(lock)
            raise


@contextmanager
def _alone(hosting: Hosting) -> Iterator[None]:
    """Two users who find no server must not both start one."""
    with (hosting.folder / f".{hosting.name}.start").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _running(hosting: Hosting) -> _State | None:
    state = _read_state(hosting)
    return state if state is not None and state.is_alive() and _is_healthy(state) else None


def _read_state(hosting: Hosting) -> _State | None:
    try:
        return _State(**json.loads(hosting.state.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _is_healthy(state: _State) -> bool:
    try:
        with urllib.request.urlopen(f"{state.url}/health", timeout=5) as answer:  # noqa: S310  # our own loopback server
            return bool(answer.status == 200)
    except (OSError, ValueError):
        return False


def _start(hosting: Hosting) -> _State:
    hosting.state.unlink(missing_ok=True)
    options = {
        "--name": hosting.name,
        "--threads": hosting.threads,
        "--context": hosting.context_tokens,
        "--slots": hosting.slots,
        "--linger": hosting.linger_seconds,
    }
    command = [
        sys.executable,
        "-m",
        "rlm_worker.models.serve",
        *map(str, (hosting.file, hosting.state, hosting.users)),
    ]
    with hosting.log.open("wb") as log:
        process = subprocess.Popen(
            [*command, *(f"{name}={value}" for name, value in options.items())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=_bare_environment(),
            start_new_session=True,  # it outlives the user that happened to start it
        )
    state = _wait_for_state(hosting, process)
    threading.Thread(target=process.wait, name="reap-embedded-model", daemon=True).start()
    return state


def _bare_environment() -> dict[str, str]:
    """The server needs no key of anybody's."""
    kept = ("PATH", "HOME", "LANG", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV")
    return {name: os.environ[name] for name in kept if name in os.environ}


def _wait_for_state(hosting: Hosting, process: subprocess.Popen[bytes]) -> _State:
    give_up = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up:
        state = _read_state(hosting)
        if state is not None and state.pid == process.pid and _is_healthy(state):
            return state
        if process.poll() is not None:
            raise ModelUnavailable(hosting.name, f"its server ended at once: {_last_words(hosting)}")
        time.sleep(POLL_SECONDS)
    process.kill()
    process.wait()
    raise ModelUnavailable(hosting.name, f"not loaded within {START_SECONDS:g} s; choose a smaller model")


def _last_words(hosting: Hosting) -> str:
    lines = [line for line in hosting.log.read_text(errors="replace").splitlines() if line.strip()]
    said = lines[-1][:200] if lines else "it said nothing"
    return f"{said} (the whole log is {hosting.log})"
