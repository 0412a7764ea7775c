"""Whose container it is, by labels: a worker's containers are swept when the worker is gone. Knows no session."""

import contextlib
import os
from pathlib import Path

from sandbox.backends.docker import engine as engines

LABEL = "custody.owner"
_PLACE = "custody.place"
_BOOT = "custody.boot"


def labels() -> dict[str, str]:
    """Name this process so that nobody can be taken for it later: id, start time, pid namespace, boot."""
    return {LABEL: f"{os.getpid()}:{_start_of(os.getpid())}", _PLACE: _place(), _BOOT: _boot()}


def sweep(engine: "engines.Engine") -> list[str]:
    """Remove the containers whose worker is gone; return their ids. What fails is left for the next sweep."""
    removed = []
    for container in engine.containers(LABEL):
        if is_orphan(container.get("Labels") or {}):
            with contextlib.suppress(*engines.Failure):
                if container.get("State") == "paused":
                    engine.thaw(
                        container["Id"]
                    )  # a frozen one does not die at once, and engines give up on it
                engine.remove(container["Id"])
                removed.append(str(container["Id"]))
    return removed


def is_orphan(found: dict[str, str]) -> bool:
    """Say whether the owner is surely gone. A worker that cannot be seen from here is given the benefit."""
    if found.get(_BOOT) != _boot():
        return _BOOT in found
    if found.get(_PLACE) != _place():
        return False
    pid, _, start = found.get(LABEL, "").partition(":")
    return pid.isdigit() and _start_of(int(pid)) != start


def _start_of(pid: int) -> str:
    """Return when a process started, in ticks since boot; empty when there is none of this id."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[19]


def _place() -> str:
    return str(Path("/proc/self/ns/pid").readlink())


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
