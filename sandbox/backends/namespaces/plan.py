"""What one sandbox is to be made of: the request from the host to the zygote, as a value with a JSON form."""

import dataclasses
import json
import os
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, kw_only=True)
class Bind:
    source: str
    target: str
    is_evidence: bool = False


@dataclass(frozen=True)
class Header:
    """The part of a request that the zygote reads."""

    name: str
    memory_bytes: int
    processes: int
    language_places: tuple[str, ...]

    @classmethod
    def from_json(cls, text: bytes) -> "Header":
        name, memory_bytes, processes, places = json.loads(text)
        return cls(name, memory_bytes, processes, tuple(places))


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything the zygote's child needs to know; it comes from the worker and is trusted."""

    name: str
    evidence: tuple[Bind, ...]
    guest_paths: tuple[Bind, ...]
    memory_bytes: int
    processes: int
    open_files: int
    workspace_bytes: int
    workspace_inodes: int
    tmp_bytes: int
    cpu_seconds: int | None
    frame_bytes: int
    frame_depth: int
    calls_in_flight: int
    language: str = "open"
    # The one package that the strict language needs; bound for it only.
    language_paths: tuple[Bind, ...] = ()
    # Made for a pool: evidence comes later, from outside, through descriptors of its namespaces.
    is_pooled: bool = False

    @property
    def shape(self) -> "Plan":
        """What is the same for all plans that one pooled sandbox could serve."""
        return dataclasses.replace(self, name="", evidence=(), is_pooled=True)

    def handed_namespaces(self, *, is_root: bool) -> tuple[str, ...]:
        """Name the namespaces whose descriptors the host gets, so that evidence can be brought in later."""
        if not self.is_pooled:
            return ()
        return ("mnt",) if is_root else ("mnt", "user")

    def header(self) -> bytes:
        """What the zygote itself must know. All that it ever held can be read in every sandbox it makes: nothing of a job."""
        places = [bind.source for bind in self.language_paths]
        return json.dumps([self.name, self.memory_bytes, self.processes, places]).encode()

    def to_json(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def read(cls, descriptor: int) -> Self:
        """Read a plan from the memory file it came in. Not in the zygote, which would remember it."""
        return cls.from_json(os.pread(descriptor, os.fstat(descriptor).st_size, 0))

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        fields = json.loads(text)
        for name in ("evidence", "guest_paths", "language_paths"):
            fields[name] = tuple(Bind(**bind) for bind in fields[name])
        return cls(**fields)
