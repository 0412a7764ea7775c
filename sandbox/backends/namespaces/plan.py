"""What one sandbox is to be made of: the request from the host to the zygote, as a value with a JSON form."""

import dataclasses
import json
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Bind:
    source: str
    target: str
    is_evidence: bool = False


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

    def to_json(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> "Plan":
        fields = json.loads(text)
        for name in ("evidence", "guest_paths", "language_paths"):
            fields[name] = tuple(Bind(**bind) for bind in fields[name])
        return cls(**fields)
