"""What a session needs of a backend: one confined guest, whatever contains it. Values and protocols only."""

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sandbox.artifacts import Collected
from sandbox.policy import ArtifactLimits, Policy


@dataclass(frozen=True)
class Ending:
    """What was seen when the guest was gone."""

    exit_code: int | None = None
    oom_kills: int = 0
    survivors: tuple[int, ...] = ()
    # Why the backend itself killed it, if it did.
    reason: str = ""
    # What the guest did on its wires that no guest may do; empty when it kept the rules.
    violation: str = ""


class Guest(Protocol):
    """A confined guest as the host holds it. Every wire carries untrusted bytes."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers that hold, as the confinement itself reported them."""
        ...

    @property
    def init_pid(self) -> int:
        """The host's process id by which an operator finds the sandbox."""
        ...

    @property
    def channel(self) -> socket.socket:
        """Frames, both ways."""
        ...

    @property
    def stdout(self) -> int: ...

    @property
    def stderr(self) -> int: ...

    @property
    def gone(self) -> int:
        """A descriptor that becomes readable when no process of the guest is left, and not before."""
        ...

    def interrupt(self) -> None:
        """Send the cell an interrupt, as Ctrl-C would. Safe from any thread."""
        ...

    def kill(self) -> None:
        """Kill everything and return at once; `gone` tells the effect. Safe from any thread, also after the end."""
        ...

    async def ending(self) -> Ending:
        """Clean up what the guest left outside, and say how it ended. Called once, after `gone`."""
        ...

    def collect(self, into: Path, limits: ArtifactLimits) -> Collected:
        """Copy what the guest left in its workspace into a directory. Blocking; also after the end where it can be."""
        ...

    def release(self) -> None:
        """Close every descriptor. A late kill must not reach the next owner of a number. May be called twice."""
        ...


class BackendModule(Protocol):
    """The module `sandbox.backends.<name>.backend`."""

    def open_guest(self, policy: Policy) -> Guest:
        """Return a confined guest, or raise SandboxUnavailable or PolicyError and leave nothing. Blocking."""
        ...

    def warm(self) -> None:
        """Prepare for the first guest in the background; failures are told by the first guest."""
        ...
