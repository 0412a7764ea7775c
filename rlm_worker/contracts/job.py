"""JobSpec: one bounded question, complete before anything runs. Knows nothing of leases, stores or sandboxes."""

from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rlm_worker.contracts.base import PROTOCOL_VERSION, Contract, Count, JsonObject, Name, Positive, Sha256

Dimension = Literal[
    "iterations",
    "subcalls",
    "depth",
    "wall_time",
    "tokens",
    "input_tokens",
    "output_tokens",
    "cost",
    "host_calls",
    "output_bytes",
    "sandbox_cpu",
    "sandbox_memory",
]


class Budget(Contract):
    """Limits of a job. None means: not limited in this dimension (iterations, subcalls, depth and wall time always are)."""

    max_iterations: Positive = 20
    max_subcalls: Count = 200
    max_depth: Count = 1
    max_wall_time_ms: Positive = 600_000
    max_tokens: Positive | None = None
    max_input_tokens: Positive | None = None
    max_output_tokens: Positive | None = None
    max_cost_usd: Annotated[Decimal, Field(ge=0)] | None = None
    max_host_calls: Count = 1_000
    max_output_bytes: Positive = 64 * 1024 * 1024
    max_sandbox_cpu_ms: Positive | None = None
    max_sandbox_memory_bytes: Positive = 1024 * 1024 * 1024
    #: Share of tokens and cost that only the closing turn may use.
    closing_reserve: Annotated[float, Field(ge=0, le=0.5)] = 0.05


class Reading(Contract):
    """Where the index of evidence and the text forms of its documents lie, and the digest of that index."""

    location: str
    digest: Sha256


class EvidenceRef(Contract):
    """One staged, immutable input. The digest is of its manifest; content hashes are sealed in the trace."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._ -]{0,199}$")]
    kind: Literal["file", "tree"]
    location: str
    manifest_digest: Sha256
    files: Count
    size_bytes: Count
    trust: Literal["untrusted", "trusted"] = "untrusted"
    #: Where it came from, in words without secrets, when it was brought in from elsewhere.
    origin: str = ""
    reading: Reading | None = None


class SandboxPolicy(Contract):
    """What contains the cells of a job."""

    backend: Literal["namespaces", "docker", "landlock"] = "namespaces"
    #: Of containers: the engine's own runtime, or gVisor's.
    runtime: Literal["runc", "runsc"] = "runc"
    language: Literal["open", "strict"] = "open"
    cell_seconds: Annotated[float, Field(gt=0)] = 300.0
    memory_bytes: Positive = 1024 * 1024 * 1024
    processes: Positive = 64
    workspace_bytes: Positive = 256 * 1024 * 1024
    required_layers: tuple[str, ...] | None = None
    guest_paths: tuple[str, ...] = ()


class NetworkPolicy(Contract):
    """`host:port` that cells may reach, one recorded request at a time; empty means the network is off."""

    allow: tuple[str, ...] = ()


class ArtifactPolicy(Contract):
    """What is collected from the workspace when the job ends: patterns of paths, as in `out/**/*.csv`."""

    collect: tuple[str, ...] = ()
    max_files: Count = 100
    max_bytes: Count = 64 * 1024 * 1024


class ModelDriver(Contract):
    """An LLM writes the cells."""

    kind: Literal["model"] = "model"
    model: Name


class PlaybookDriver(Contract):
    """A person wrote the cells."""

    kind: Literal["playbook"] = "playbook"
    name: Name
    source: Annotated[str, Field(min_length=1, max_length=1_000_000)]


class RecordingDriver(Contract):
    """The cells of another job's trace, taken from it when this one was made; what they ask is asked anew."""

    kind: Literal["recording"] = "recording"
    job_id: Name
    cells: tuple[str, ...] = ()


Driver = Annotated[ModelDriver | PlaybookDriver | RecordingDriver, Field(discriminator="kind")]


class ForkPoint(Contract):
    """Whose past a job shares: the cells up to an iteration, with everything they were answered."""

    job_id: Name
    at: Positive
    #: The job whose seed the shared cells ran with: the first of a line of forks.
    seed_job_id: Name


class JobSpec(Contract):
    """One bounded RLM question. Immutable once submitted."""

    protocol: Literal[1, 2] = PROTOCOL_VERSION
    job_id: Name
    tenant_id: Name
    task_id: Name
    step_id: Name
    parent_job_id: Name | None = None
    depth: Count = 0
    task: Annotated[str, Field(min_length=1, max_length=100_000)]
    input_artifacts: tuple[EvidenceRef, ...] = ()
    params: JsonObject = Field(default_factory=dict)
    allowed_tools: tuple[Name, ...] = ()
    output_schema: JsonObject
    budget: Budget
    sandbox_policy: SandboxPolicy = SandboxPolicy()
    network_policy: NetworkPolicy = NetworkPolicy()
    artifact_policy: ArtifactPolicy = ArtifactPolicy()
    driver: Driver
    sub_model: Name
    labels: dict[str, str] = Field(default_factory=dict)
    fork: ForkPoint | None = None
    #: What reaching a limit does: end the job, or park it until somebody raises the limit or stops it.
    on_limit: Literal["end", "ask"] = "end"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [ref.name for ref in self.input_artifacts]
        if len(names) != len(set(names)):
            raise ValueError(f"evidence names must differ, got {names!r}")
        if self.output_schema.get("type") != "object" or not self.output_schema.get("properties"):
            raise ValueError("output_schema must be a JSON Schema of an object with properties")
        return self
