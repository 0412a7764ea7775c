"""What a session may do: data only, deny by default. Knows no backend's mechanics."""

import itertools
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal, get_args

from sandbox.addresses import BadAddress, endpoint
from sandbox.errors import PolicyError

Backend = Literal["namespaces", "docker", "landlock"]
Runtime = Literal["runc", "runsc"]
Language = Literal["open", "strict"]

#: What each backend must hold unless a policy says otherwise.
REQUIRED_LAYERS: dict[Backend, frozenset[str]] = {
    "namespaces": frozenset(
        {
            "mount-ns",
            "pid-ns",
            "net-ns",
            "ipc-ns",
            "uts-ns",
            "uid",
            "caps-empty",
            "no-new-privs",
            "landlock",
            "seccomp",
            "rlimits",
        }
    ),
    "docker": frozenset(
        {
            "mount-ns",
            "pid-ns",
            "net-ns",
            "ipc-ns",
            "uts-ns",
            "uid",
            "caps-empty",
            "no-new-privs",
            "rlimits",
            "cgroup",
        }
    ),
    "landlock": frozenset(
        {"caps-empty", "no-new-privs", "landlock", "seccomp", "rlimits", "no-fork", "strict-language"}
    ),
}


@dataclass(frozen=True, kw_only=True)
class Mount:
    """A host file or directory, shown read-only at /evidence/<target>."""

    source: str
    target: str

    def __post_init__(self) -> None:
        parts = self.target.split("/")
        if any(part in {"", ".", ".."} for part in parts) or "\0" in self.target:
            raise PolicyError(
                f"evidence target {self.target!r} must be a relative path without empty parts, '.' or '..'"
            )
        if not os.path.isabs(self.source):  # noqa: PTH117 - a string, not yet a path
            raise PolicyError(f"evidence source {self.source!r} must be an absolute path")


def _all_positive(limits: object, named: str) -> None:
    for limit in fields(limits):  # type: ignore[arg-type]
        value = getattr(limits, limit.name)
        if isinstance(value, int | float) and value <= 0:
            raise PolicyError(f"{named} {limit.name} must be more than zero, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class Limits:
    memory_bytes: int = 1 << 30
    processes: int = 64
    open_files: int = 256
    workspace_bytes: int = 256 << 20
    workspace_inodes: int = 16384
    tmp_bytes: int = 64 << 20
    # Kept per cell and stream; what comes after it is counted and dropped.
    output_bytes: int = 1 << 20
    cpu_seconds: int | None = None
    frame_bytes: int = 32 << 20
    frame_depth: int = 64
    calls_in_flight: int = 256

    def __post_init__(self) -> None:
        _all_positive(self, "limit")


@dataclass(frozen=True, kw_only=True)
class ArtifactLimits:
    """How much of a workspace is collected, whatever code left in it."""

    files: int = 1_000
    total_bytes: int = 256 << 20
    file_bytes: int = 64 << 20
    depth: int = 32
    # Directory entries looked at, kept or not.
    entries: int = 20_000
    # Patterns of paths, as in `out/**/*.csv`; without any, every file.
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _all_positive(self, "artifact limit")
        for pattern in self.only:
            if any(part in {"", ".", ".."} for part in pattern.split("/")):
                raise PolicyError(
                    f"the pattern {pattern!r} must be relative to the workspace, as in 'out/*.csv', without empty parts, '.' or '..'"
                )


@dataclass(frozen=True, kw_only=True)
class Network:
    """What cells may reach, through the host's proxy only: `host:port` or `[v6]:port`. Nothing by default.

    A private or local address is refused unless it stands here itself, as an address or as `localhost`: a
    name that leads to one is not enough.
    """

    allow: tuple[str, ...] = ()
    request_bytes: int = 1 << 20
    response_bytes: int = 8 << 20
    seconds: float = 30.0

    def __post_init__(self) -> None:
        _all_positive(self, "network limit")
        for address in self.allow:
            try:
                endpoint(address)
            except BadAddress as error:
                raise PolicyError(f"the network address {address!r} cannot be used: {error}") from None


@dataclass(frozen=True, kw_only=True)
class Policy:
    backend: Backend = "namespaces"
    # Of the docker backend: the engine's own runtime, or gVisor's.
    runtime: Runtime = "runc"
    evidence: tuple[Mount, ...] = ()
    # Names of the host calls a cell may make; every other is refused by the host.
    calls: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)
    artifacts: ArtifactLimits = field(default_factory=ArtifactLimits)
    network: Network = field(default_factory=Network)
    seed: int = 0
    interrupt_grace_seconds: float = 1.0
    # None: those of REQUIRED_LAYERS for the backend.
    required_layers: frozenset[str] | None = None
    language: Language = "open"
    # Host directories with libraries for the cells: mounted read-only, put on their sys.path.
    guest_paths: tuple[str, ...] = ()

    @property
    def required(self) -> frozenset[str]:
        return REQUIRED_LAYERS[self.backend] if self.required_layers is None else self.required_layers

    def __post_init__(self) -> None:
        for named, value, known in (
            ("backend", self.backend, Backend),
            ("runtime", self.runtime, Runtime),
            ("language", self.language, Language),
        ):
            if value not in get_args(known):
                raise PolicyError(f"there is no {named} {value!r}, only {', '.join(get_args(known))}")
        if self.backend == "landlock" and self.language != "strict":
            raise PolicyError("the landlock backend is degraded and runs cells only with language='strict'")
        targets = sorted(mount.target + "/" for mount in self.evidence)
        for shorter, longer in itertools.pairwise(targets):
            if longer.startswith(shorter):
                raise PolicyError(f"evidence targets overlap: {shorter!r} and {longer!r}")
        for mount in self.evidence:
            if not Path(mount.source).is_file() and not Path(mount.source).is_dir():
                raise PolicyError(f"evidence {mount.source!r} is not a file or directory that can be found")
        for path in self.guest_paths:
            if not Path(path).is_dir():
                raise PolicyError(f"{path!r} is to hold libraries for the cells and is no directory")
