"""A container as a session holds it: its wires, its kill, its end. Every engine call is made off the session's thread."""

import contextlib
import os
import select
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import docker.errors

from sandbox.artifacts import Collected
from sandbox.backends.docker import collecting
from sandbox.backends.docker.attached import Attached
from sandbox.backends.docker.engine import Engine, Failure
from sandbox.backends.docker.inside import records
from sandbox.backends.docker.pump import Pump
from sandbox.backends.docker.readback import Group
from sandbox.backends.port import Ending
from sandbox.errors import SessionEnded
from sandbox.policy import ArtifactLimits

_CONFIRM_SECONDS = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.5


@dataclass(frozen=True)
class Process:
    """The container's first process as the host sees it: where it can be seen, it can be killed without the engine."""

    pid: int
    handle: int  # a pidfd, or -1
    group: Group | None

    def kill(self) -> bool:
        """Say whether the signal was sent, or nobody is left to get it."""
        if self.handle < 0:
            return False
        try:
            signal.pidfd_send_signal(self.handle, signal.SIGKILL)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return True

    @property
    def is_gone(self) -> bool:
        if self.handle < 0:
            return False
        waiter = select.poll()
        waiter.register(self.handle, select.POLLIN)
        return bool(waiter.poll(0)) and not self.survivors()

    def survivors(self) -> tuple[int, ...]:
        return () if self.group is None else self.group.members()


class Guest:
    """One container, from the moment its relay has reported. A keeper thread sees it to its end, whoever lets go."""

    def __init__(self, engine: Engine, container: str, attached: Attached, process: Process) -> None:
        self._engine = engine
        self._container = container
        self._process = process
        self._pump = Pump(attached, on_exit=self._note_exit, on_stuck=self._on_stuck)
        self._lock = threading.Lock()
        self._collecting = threading.Lock()
        self._is_released = False
        self._status: int | None = None
        self._oom_kills = 0
        self._survivors: tuple[int, ...] = ()
        self.layers: tuple[str, ...] = ()
        self.channel = self._pump.channel
        self.stdout, self.stderr = self._pump.stdout, self._pump.stderr
        self.gone, self._gone = os.pipe()
        self._keeper = threading.Thread(target=self._keep, daemon=True, name=f"container-{container[:12]}")
        self._keeper.start()

    @property
    def init_pid(self) -> int:
        return self._process.pid

    def interrupt(self) -> None:
        self._pump.order(records.INTERRUPT)

    def kill(self) -> None:
        """Kill the first process, and all others with it; where it cannot be reached, ask the engine."""
        self._pump.discard()
        with self._lock:
            if self._gone < 0 or self._process.kill():
                return
        self._kill_by_engine()

    def _kill_by_engine(self) -> None:
        """In a thread of its own: an engine may not answer before the pump has emptied the container's pipe."""

        def ask() -> None:
            with contextlib.suppress(*Failure):
                self._engine.kill(self._container)

        threading.Thread(target=ask, daemon=True, name="container-kill").start()

    def _on_stuck(self) -> bool:
        """A kill does not show. Say whether nobody is left and only the engine does not say so."""
        if self._process.is_gone:
            return True
        self._process.kill()
        self._kill_by_engine()
        return False

    async def ending(self) -> Ending:
        return Ending(
            exit_code=self._status,
            oom_kills=self._oom_kills,
            survivors=self._survivors,
            violation=self._pump.violation,
        )

    def collect(self, into: Path, limits: ArtifactLimits) -> Collected:
        """Copy the workspace out through the relay. A container that is gone took its workspace along."""
        with self._collecting:
            try:
                return collecting.collect(self._pump, into, limits)
            except records.RecordError as error:
                self._pump.violation = str(error)
                self.kill()
                raise SessionEnded(
                    f"the session was ended while its files were collected: {error}"
                ) from error

    def release(self) -> None:
        with self._lock:
            if self._is_released:
                return
            self._is_released = True
        self.channel.close()
        for fd in (self.stdout, self.stderr, self.gone):
            os.close(fd)

    # ---------------------------------------------------------------- the keeper

    def _note_exit(self, status: int) -> None:
        """The runner has ended and the relay still stands, and with it the group that knows why."""
        self._status = status
        if self._process.group is not None:
            self._oom_kills = self._process.group.oom_kills()

    def _keep(self) -> None:
        """Carry until the container's pipe closes; then make sure that nothing is left, and say so."""
        try:
            self._pump.run()
            self._conclude()
        finally:
            with self._lock:
                write_end, self._gone = self._gone, -1
                if self._process.handle >= 0:
                    os.close(self._process.handle)
            with contextlib.suppress(OSError):
                os.write(write_end, b"!")
            os.close(write_end)

    def _conclude(self) -> None:
        deadline = time.monotonic() + _CONFIRM_SECONDS
        pause = _FIRST_PAUSE
        while not self._is_confirmed():
            if time.monotonic() > deadline:
                self._survivors = self._process.survivors() or (self._process.pid,)
                return
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
        self._survivors = self._process.survivors()

    def _is_confirmed(self) -> bool:
        """Ask the engine how it ended and remove it; an engine that does not answer is done without."""
        try:
            state = self._engine.state(self._container)
            if not state.get("Running"):
                self._note_state(state)
                self._engine.remove(self._container)
                return True
            self._process.kill()
            self._engine.kill(self._container)
        except docker.errors.NotFound:
            return True
        except docker.errors.APIError:
            return False  # it is in the middle of something: ask again
        except Failure:
            self._process.kill()
            if self._process.is_gone:
                self._engine.leave(self._container)
                return True
        return False

    def _note_state(self, state: dict[str, object]) -> None:
        code = state.get("ExitCode")
        if self._status is None and isinstance(code, int):
            self._status = code
        if state.get("OOMKilled") and not self._oom_kills:
            self._oom_kills = 1
