"""What a session may do: data only, deny by default. Knows no backend's mechanics."""

import itertools
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from sandbox.errors import PolicyError

DEFAULT_LAYERS = frozenset(
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
)


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
        for limit in fields(self):
            value = getattr(self, limit.name)
            if value is not None and value <= 0:
                raise PolicyError(f"limit {limit.name} must be more than zero, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class Policy:
    backend: Literal["namespaces"] = "namespaces"
    evidence: tuple[Mount, ...] = ()
    # Names of the host calls a cell may make; every other is refused by the host.
    calls: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    interrupt_grace_seconds: float = 1.0
    required_layers: frozenset[str] = DEFAULT_LAYERS
    language: Literal["open"] = "open"
    # Host directories with libraries for the cells: mounted read-only, put on their sys.path.
    guest_paths: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.backend != "namespaces" or self.language != "open":
            raise PolicyError(f"no backend {self.backend!r} with language {self.language!r} is known")
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
