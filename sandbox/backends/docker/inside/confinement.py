"""The last layers, put on from inside, and what can be read back of them all. Says facts; the host judges them."""

import contextlib
import os
import platform
import resource
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.backends.namespaces import kernel, landlock

GUEST, EVIDENCE, WORKSPACE = "/opt/sandbox", "/evidence", "/workspace"
STRICT = "/opt/strict"  # what the strict language needs
TMP = "/tmp"  # noqa: S108 - the container's own
OWN_PROCESSES = 3  # the relay, the runner and its reader thread come on top of what a cell may start
_PR_GET_NO_NEW_PRIVS = 39
_NAMESPACES = ("mnt", "pid", "net", "ipc", "uts", "user")


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What the host tells the relay about its session: limits and places inside, nothing of the host."""

    memory_bytes: int
    processes: int
    open_files: int
    workspace_bytes: int
    cpu_seconds: int | None
    frame_bytes: int
    frame_depth: int
    calls_in_flight: int
    language: str
    libraries: tuple[str, ...]
    evidence: tuple[str, ...]
    # Filters as hexadecimal text; None where none is written for this machine.
    runner_filter: str | None
    relay_filter: str | None


def harden(orders: Orders) -> dict[str, Any]:
    """Lower this process for good, before it forks the runner. Return what was put on."""
    limit_resources(orders)
    with contextlib.suppress(OSError):  # the engine has dropped them: this is the belt beside the braces
        kernel.empty_bounding_set()
        kernel.empty_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    abi = 0
    with contextlib.suppress(OSError):  # gVisor has none
        abi = landlock.restrict(readable=("/",), writable=(WORKSPACE, TMP, "/dev/null"))
    return {"landlock": abi}


def limit_resources(orders: Orders) -> None:
    """Set the limits of relay and runner both."""
    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_DATA: orders.memory_bytes,
        resource.RLIMIT_FSIZE: orders.workspace_bytes,
        resource.RLIMIT_NPROC: orders.processes + OWN_PROCESSES,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for limit, value in wanted.items():
        _limit(limit, value)


def _limit(limit: int, value: int) -> None:
    hard = resource.getrlimit(limit)[1]
    chosen = value if hard == resource.RLIM_INFINITY else min(value, hard)
    with contextlib.suppress(ValueError, OSError):  # gVisor lets some alone; what holds is read back
        resource.setrlimit(limit, (chosen, chosen))


def limit_runner(orders: Orders) -> None:
    """Set what is the runner's alone: the relay needs descriptors for its walk, and must outlive the CPU limit."""
    _limit(resource.RLIMIT_NOFILE, orders.open_files)
    seconds = orders.cpu_seconds
    if seconds is not None:
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        # One second above the soft limit, whose signal names the cause; SIGKILL would not.
        ceiling = seconds + 1 if hard == resource.RLIM_INFINITY else min(seconds + 1, hard)
        resource.setrlimit(resource.RLIMIT_CPU, (min(seconds, ceiling), ceiling))


def install_filter(program: str | None) -> bool:
    """Install a filter and say whether it holds: not every kernel that answers here can do it."""
    if program is None:
        return False
    try:
        kernel.install_filter(bytes.fromhex(program))
    except OSError:
        return False
    return True


def facts() -> dict[str, Any]:
    """Return what this process can see of its own confinement. Before the filter: it asks what cells may not."""
    uids, gids = os.getresuid(), os.getresgid()
    return {
        "init": os.getppid() == 1,
        "uids": sorted({*uids, *gids}),
        "groups": os.getgroups(),
        "uid_map": _read("/proc/self/uid_map"),
        "capabilities": [line for line in _read("/proc/self/status").splitlines() if line.startswith("Cap")],
        "no_new_privs": kernel.prctl(_PR_GET_NO_NEW_PRIVS),
        "namespaces": {name: _link(f"/proc/self/ns/{name}") for name in _NAMESPACES},
        "mounts": _mounts(),
        "spaces": {place: _space(place) for place in (WORKSPACE, TMP)},
        "interfaces": [
            line.partition(":")[0].strip() for line in _read("/proc/self/net/dev").splitlines()[2:]
        ],
        "host_name": socket.gethostname(),
        "kernel": [platform.release(), platform.version()],
        "limits": {
            "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[1],
            "data": resource.getrlimit(resource.RLIMIT_DATA)[1],
            "nproc": resource.getrlimit(resource.RLIMIT_NPROC)[1],
            "fsize": resource.getrlimit(resource.RLIMIT_FSIZE)[1],
            "core": resource.getrlimit(resource.RLIMIT_CORE)[1],
        },
    }


def seccomp_mode() -> int:
    """Return the mode that the kernel reports for this thread: 2 is a filter."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith("Seccomp:"):
            return int(line.partition(":")[2])
    return 0


def _mounts() -> dict[str, list[str]]:
    """Map the mount points that matter to their type and options."""
    found: dict[str, list[str]] = {}
    for line in _read("/proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        if fields[4] in {"/", WORKSPACE, TMP}:
            found[fields[4]] = [right.split(" ")[0], fields[5]]
    return found


def _space(place: str) -> list[int]:
    """Return how many bytes and how many files a file system can hold."""
    held = os.statvfs(place)
    return [held.f_blocks * held.f_frsize, held.f_files]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""
