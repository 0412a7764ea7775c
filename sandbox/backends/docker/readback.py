"""Which layers hold, judged from what the guest saw of itself before any cell ran and from what the host sees of it."""

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.backends.docker.settings import Space
from sandbox.policy import Runtime

_NAMESPACES = {"mnt": "mount-ns", "pid": "pid-ns", "net": "net-ns", "ipc": "ipc-ns", "uts": "uts-ns"}
_LIMITS = {"memory": ("memory.limit_in_bytes", "memory.max"), "pids": ("pids.max", "pids.max")}


@dataclass(frozen=True)
class Group:
    """The control groups of a container, found by its first process."""

    version: int
    directories: tuple[tuple[str, Path], ...]

    @property
    def layer(self) -> str:
        """Name the controllers whose limit is set, as read back; empty when memory or pids have none."""
        limited = [name for name, directory in self.directories if _is_limited(name, directory)]
        return f"cgroup-v{self.version}:{','.join(limited)}" if set(limited) == set(_LIMITS) else ""

    def members(self) -> tuple[int, ...]:
        found: set[int] = set()
        for _, directory in self.directories:
            found |= {int(pid) for pid in _read(directory / "cgroup.procs").split()}
        return tuple(sorted(found))

    def oom_kills(self) -> int:
        for name, directory in self.directories:
            for file in ("memory.oom_control", "memory.events") if name == "memory" else ():
                for line in _read(directory / file).splitlines():
                    if line.startswith("oom_kill "):
                        return int(line.split()[1])
        return 0


def group_of(pid: int) -> Group | None:
    """Return the control groups of a process, where they can be seen from here."""
    found: list[tuple[str, Path]] = []
    paths: dict[str, str] = {}
    for line in _read(Path(f"/proc/{pid}/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        paths.update(dict.fromkeys(controllers.split(","), path))
    for kind, point, options in _hierarchies():
        for name in _LIMITS:
            own = name in options.split(",") if kind == "cgroup" else True
            inside = paths.get(name if kind == "cgroup" else "")
            if own and inside is not None and (directory := Path(point) / inside.lstrip("/")).is_dir():
                found.append((name, directory))
    version_1 = [(name, directory) for name, directory in found if name in paths]
    if version_1:
        return Group(1, tuple(version_1[: len(_LIMITS)]))
    return Group(2, tuple(found)) if found else None


def _hierarchies() -> Iterable[tuple[str, str, str]]:
    for line in _read(Path("/proc/self/mountinfo")).splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind.startswith("cgroup"):
            yield kind, left.split(" ")[4], options


def _is_limited(name: str, directory: Path) -> bool:
    for file in _LIMITS[name]:
        value = _read(directory / file).strip()
        if value.isdigit() and int(value) < 1 << 62:
            return True
    return False


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the guest must have seen of itself."""

    uid: int
    host_name: str
    runtime: Runtime
    # The most that each limit may read back as.
    limits: dict[str, int]
    spaces: dict[str, Space]


def layers(found: dict[str, Any], expected: Expected, group: Group | None) -> tuple[str, ...]:
    """Return the names of the layers that hold; a fact that is missing or odd makes no layer."""
    sets = [int(line.partition(":")[2], 16) for line in found["capabilities"]]
    uid, runtime = expected.uid, expected.runtime
    held = {
        **_namespaces(found, expected),
        "uid": found["uids"] == [uid] and set(found["groups"]) <= {uid},
        "caps-empty": bool(sets) and not any(sets),
        "no-new-privs": found["no_new_privs"] == 1,
        f"landlock:{found['landlock']}": found["landlock"] >= 1,
        "seccomp": found["filtered"] and found["seccomp"] == 2,
        "rlimits": all(0 <= found["limits"][name] <= most for name, most in expected.limits.items()),
        f"runtime:{runtime}": _is_second_kernel(found) == (runtime == "runsc"),
    }
    names = [name for name, holds in held.items() if holds]
    return (*names, group.layer) if group is not None and group.layer else tuple(names)


def _namespaces(found: dict[str, Any], expected: Expected) -> dict[str, bool]:
    """Each must not be this process's own, and show what such a namespace shows."""
    shows = {
        "mnt": _is_closed_root(found, expected.spaces),
        "pid": bool(found["init"]),
        "net": set(found["interfaces"]) <= {"lo"},
        "ipc": True,
        "uts": found["host_name"] == expected.host_name,
    }
    return {layer: shows[kind] and _is_own(found, kind) for kind, layer in _NAMESPACES.items()}


def _is_second_kernel(found: dict[str, Any]) -> bool:
    """Whether another kernel than this machine's answers inside."""
    return bool(found["kernel"] != [platform.release(), platform.version()])


def _is_own(found: dict[str, Any], kind: str) -> bool:
    """A namespace is the container's own when it is not this process's; a second kernel shares none with the host."""
    inside = found["namespaces"][kind]
    return _is_second_kernel(found) or (
        bool(inside) and inside != str(Path(f"/proc/self/ns/{kind}").readlink())
    )


def _is_closed_root(found: dict[str, Any], spaces: dict[str, Space]) -> bool:
    """Whether the root is read-only and every place to write is a file system of the size that was asked for."""
    kind, options = found["mounts"].get("/", ["", ""])
    are_sized = all(
        place in found["mounts"] and space.holds(*found["spaces"][place]) for place, space in spaces.items()
    )
    return bool(kind) and "ro" in options.split(",") and are_sized


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
