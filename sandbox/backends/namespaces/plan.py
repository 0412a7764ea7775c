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
    seed: int
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

    def to_json(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes) -> "Plan":
        fields = json.loads(text)
        for name in ("evidence", "guest_paths"):
            fields[name] = tuple(Bind(**bind) for bind in fields[name])
        return cls(**fields)
