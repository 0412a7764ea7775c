"""Control groups for memory and pids, version 1 or 2, where this process may make one. Knows no session."""

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "custody-"
_CONTROLLERS = ("memory", "pids")
_REMOVE_TRIES = 100


@dataclass(frozen=True)
class Hierarchy:
    """A directory below which own groups can be made, and what they can limit."""

    version: int
    parent: Path
    controllers: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """One group in each hierarchy: make it, join it, read its end, remove it."""

    hierarchies: tuple[Hierarchy, ...]
    name: str

    @property
    def layer(self) -> str:
        version = self.hierarchies[0].version
        return f"cgroup-v{version}:" + ",".join(c for h in self.hierarchies for c in h.controllers)

    def directories(self) -> list[Path]:
        return [hierarchy.parent / self.name for hierarchy in self.hierarchies]

    def create(self, *, memory_bytes: int, processes: int) -> None:
        for hierarchy, directory in zip(self.hierarchies, self.directories(), strict=True):
            directory.mkdir()
            for file, value in _settings(hierarchy, memory_bytes, processes):
                _write(f"{directory}/{file}", str(value))

    def join(self) -> None:
        """Put this process, which has one thread, into the group; what it forks is born there.

        Version 1 lets a thread move itself without stopping all forks of the machine, for which the kernel would
        wait several milliseconds.
        """
        for hierarchy, directory in zip(self.hierarchies, self.directories(), strict=True):
            _write(f"{directory}/{'tasks' if hierarchy.version == 1 else 'cgroup.procs'}", "0")

    def oom_kills(self) -> int:
        for directory in self.directories():
            for file in ("memory.oom_control", "memory.events"):
                with contextlib.suppress(OSError):
                    return _counter((directory / file).read_text(), "oom_kill")
        return 0

    def members(self) -> list[int]:
        found: set[int] = set()
        for directory in self.directories():
            with contextlib.suppress(OSError):
                found |= {int(pid) for pid in (directory / "cgroup.procs").read_text().split()}
        return sorted(found)

    def remove(self) -> bool:
        """Remove the directories. A process just reaped may count for another moment: then ask again."""
        is_gone = True
        for directory in self.directories():
            try:
                directory.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                is_gone = False
        return is_gone

    def remove_patiently(self) -> None:
        for _ in range(_REMOVE_TRIES):
            if self.remove():
                return
            time.sleep(0.002)


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _settings(hierarchy: Hierarchy, memory_bytes: int, processes: int) -> list[tuple[str, int]]:
    chosen: list[tuple[str, int]] = []
    if "memory" in hierarchy.controllers:
        chosen.append(("memory.limit_in_bytes" if hierarchy.version == 1 else "memory.max", memory_bytes))
        if hierarchy.version == 2:
            chosen.append(("memory.swap.max", 0))
    if "pids" in hierarchy.controllers:
        chosen.append(("pids.max", processes))
    return chosen


def _counter(text: str, name: str) -> int:
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0


def find_hierarchies() -> tuple[Hierarchy, ...]:
    """Return where own groups can be made: both controllers, or nothing."""
    memberships = _memberships()
    return _version_1(memberships) or _version_2(memberships)


def _memberships() -> dict[str, str]:
    """Map each controller of version 1, and "" for version 2, to this process's path in its hierarchy."""
    found: dict[str, str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            found[controller] = path
    return found


def _mount_points() -> list[tuple[str, str, str]]:
    """List (type, mount point, super options) of the mounted hierarchies."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind.startswith("cgroup"):
            found.append((kind, left.split(" ")[4], options))
    return found


def _version_1(memberships: dict[str, str]) -> tuple[Hierarchy, ...]:
    found = []
    for controller in _CONTROLLERS:
        for kind, point, options in _mount_points():
            if kind == "cgroup" and controller in options.split(",") and controller in memberships:
                parent = _first_usable(Path(point), memberships[controller])
                if parent is not None:
                    found.append(Hierarchy(1, parent, (controller,)))
    return tuple(found) if len(found) == len(_CONTROLLERS) else ()


def _version_2(memberships: dict[str, str]) -> tuple[Hierarchy, ...]:
    for kind, point, _ in _mount_points():
        if kind != "cgroup2" or "" not in memberships:
            continue
        own = Path(point) / memberships[""].lstrip("/")
        for parent in (own, own.parent):
            if _delegates(parent) and _is_usable(parent):
                return (Hierarchy(2, parent, _CONTROLLERS),)
    return ()


def _delegates(parent: Path) -> bool:
    """Say whether children of this group get both controllers, asking for it where that is allowed."""
    control = parent / "cgroup.subtree_control"
    with contextlib.suppress(OSError):
        control.write_text("+memory +pids")
    try:
        return set(_CONTROLLERS) <= set(control.read_text().split())
    except OSError:
        return False


def _first_usable(point: Path, membership: str) -> Path | None:
    for candidate in (point / membership.lstrip("/"), point):
        if _is_usable(candidate):
            return candidate
    return None


def _is_usable(parent: Path) -> bool:
    """Try it: permissions on cgroup files say less than one mkdir."""
    trial = parent / f"{_PREFIX}{os.getpid()}-trial"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return False
    return True


def sweep(hierarchies: tuple[Hierarchy, ...]) -> None:
    """Remove empty groups whose worker is gone: what a power cut or kill -9 of everything at once leaves."""
    for hierarchy in hierarchies:
        for directory in hierarchy.parent.glob(f"{_PREFIX}*"):
            owner = directory.name.removeprefix(_PREFIX).partition("-")[0]
            if owner.isdigit() and not Path(f"/proc/{owner}").exists():
                with contextlib.suppress(OSError):
                    directory.rmdir()
