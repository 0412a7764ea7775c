"""From a policy to a container's configuration, in the engine's own words. Makes nothing itself."""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.backends.docker import image, owners
from sandbox.backends.docker.inside.confinement import EVIDENCE, OWN_PROCESSES, TMP, WORKSPACE
from sandbox.backends.docker.profile import profile
from sandbox.policy import Policy

_LIBRARIES = "/opt/libraries"
_UID_BASE, _UIDS = 0x78000000, 1 << 26  # far from people's uids and from those of the namespaces backend
_SMALL_UID_BASE, _SMALL_UIDS = 20_000, 40_000  # where an engine maps only the usual 65536 ids
_TMP_INODES = 4096
_PAGE_BYTES = 4096
_SEALED = "nosuid,nodev,noexec"
#: So that a cell meets MemoryError at its own limit before the group's killer comes; gVisor's kernel lives in the group.
_MEMORY_HEADROOM = {"runc": 48 << 20, "runsc": 64 << 20}
#: Threads of the runtime itself while it starts, and of gVisor's kernel for as long as it lives.
_RUNTIME_TASKS = {"runc": 16, "runsc": 192}
_PROC_LINKS = frozenset({"self", "thread-self", "mounts", "net"})


@dataclass(frozen=True, kw_only=True)
class Bind:
    source: str
    target: str
    is_evidence: bool = False


@dataclass(frozen=True, kw_only=True)
class Container:
    """One container to be: who it is, and what of the host it shows."""

    name: str
    uid: int
    binds: tuple[Bind, ...]


def plan_container(policy: Policy, *, small_ids: bool) -> Container:
    base, count = (_SMALL_UID_BASE, _SMALL_UIDS) if small_ids else (_UID_BASE, _UIDS)
    evidence = [
        Bind(source=os.path.realpath(mount.source), target=f"{EVIDENCE}/{mount.target}", is_evidence=True)
        for mount in policy.evidence
    ]
    libraries = [
        Bind(source=os.path.realpath(path), target=f"{_LIBRARIES}/{index}")
        for index, path in enumerate(policy.guest_paths)
    ]
    return Container(
        name=f"custody-{os.getpid()}-{secrets.token_hex(6)}",
        uid=base + secrets.randbelow(count),
        binds=(*evidence, *libraries),
    )


def configuration(policy: Policy, container: Container, *, image_name: str) -> dict[str, Any]:
    """Return the body of the engine's `create` call."""
    return {
        "Image": image_name,
        "Hostname": container.name,
        "User": f"{container.uid}:{container.uid}",
        "WorkingDir": "/",
        "Env": ["PYTHONHASHSEED=0"],
        # No -I: it would ignore the hash seed. These switches and an environment of one variable say the same.
        "Entrypoint": [image.INTERPRETER, "-S", "-s", "-P", "-B", "-X", "utf8", image.START],
        "Cmd": [],
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        # A worker that is gone closes the relay's input, and the container ends by itself.
        "StdinOnce": True,
        "NetworkDisabled": True,
        "Labels": owners.labels(),
        "HostConfig": _host_configuration(policy, container),
    }


def _host_configuration(policy: Policy, container: Container) -> dict[str, Any]:
    limits = policy.limits
    memory = limits.memory_bytes + _MEMORY_HEADROOM[policy.runtime]
    filters = profile()
    return {
        "Runtime": policy.runtime,
        "NetworkMode": "none",
        "IpcMode": "none",  # own, and without a writable /dev/shm
        "ReadonlyRootfs": True,
        "Privileged": False,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges", *([f"seccomp={filters}"] if filters else [])],
        "Memory": memory,
        "MemorySwap": memory,
        "PidsLimit": limits.processes + OWN_PROCESSES + _RUNTIME_TASKS[policy.runtime],
        "OomKillDisable": False,
        "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
        "Mounts": [
            *(_mount(bind) for bind in _with_submounts(container.binds)),
            *(_memory(place, space, container.uid) for place, space in spaces(policy).items()),
        ],
        "MaskedPaths": ["/sys", *_proc_entries()],
        "ReadonlyPaths": [],
        "LogConfig": {"Type": "none", "Config": {}},  # a log file would grow without end on the host's disk
        "RestartPolicy": {"Name": "no"},
        "AutoRemove": False,  # its last state says how it ended
        "Dns": ["127.0.0.1"],  # else the host's own would stand in /etc/resolv.conf
        "DnsSearch": ["."],
        "ExtraHosts": [],
        "Init": False,
    }


@dataclass(frozen=True)
class Space:
    """What a place to write may hold."""

    size_bytes: int
    files: int

    def holds(self, size_bytes: int, files: int) -> bool:
        """Say whether a file system of this size is one, and no larger."""
        return 0 < size_bytes < self.size_bytes + _PAGE_BYTES and 0 < files <= self.files


def spaces(policy: Policy) -> dict[str, Space]:
    limits = policy.limits
    return {
        WORKSPACE: Space(limits.workspace_bytes, limits.workspace_inodes),
        TMP: Space(limits.tmp_bytes, _TMP_INODES),
    }


def _memory(place: str, space: Space, uid: int) -> dict[str, Any]:
    """A file system in memory that the engine mounts outside and removes with the container.

    Not one of the container's own making: gVisor's would bound bytes and not the number of files.
    """
    size = f"size={space.size_bytes},nr_inodes={space.files}"
    options = {"type": "tmpfs", "device": "tmpfs", "o": f"{_SEALED},{size},mode=0700,uid={uid},gid={uid}"}
    return {
        "Type": "volume",
        "Target": place,
        "VolumeOptions": {"NoCopy": True, "DriverConfig": {"Name": "local", "Options": options}},
    }


def _mount(bind: Bind) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": bind.source,
        "Target": bind.target,
        "ReadOnly": True,
        # The engine makes only the top of a tree read-only: what is mounted below gets a bind of its own.
        "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
    }


def _with_submounts(binds: tuple[Bind, ...]) -> list[Bind]:
    points = _mount_points()
    found: list[Bind] = []
    for bind in binds:
        below = [point for point in points if point.startswith(bind.source.rstrip("/") + "/")]
        found += [
            bind,
            *(Bind(source=p, target=bind.target + p[len(bind.source.rstrip("/")) :]) for p in below),
        ]
    return found


def _mount_points() -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    points = {line.split(" ")[4].encode("latin-1", "replace").decode("unicode_escape") for line in lines}
    return sorted(points)


def _proc_entries() -> list[str]:
    """All of /proc but processes: a container's own /proc shows the machine's hardware and kernel settings too."""
    names = (entry.name for entry in Path("/proc").iterdir())
    return sorted(f"/proc/{name}" for name in names if not name.isdigit() and name not in _PROC_LINKS)
