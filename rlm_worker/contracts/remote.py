"""What a worker on another machine asks of the control plane beside the gateway itself: admission, work, evidence by content."""

from typing import Annotated, Final, Literal

from pydantic import Field

from rlm_worker.contracts.base import PROTOCOL_VERSION, Contract, Count, JsonObject, Name, Positive, Sha256
from rlm_worker.contracts.gateway import WakeUp

#: Where the gateway is found below a server's address.
GATEWAY_PATH: Final = "/v1/gateway"
#: Most bytes of files that are fetched together, and most bytes of one part of a file.
BUNDLE_BYTES: Final = 4 << 20
PART_BYTES: Final = 8 << 20
#: Most bytes of an image or document that a model was shown and that is kept beside the trace.
MEDIA_BYTES: Final = 64 << 20


class HelloRequest(Contract):
    """A worker says what it is. It says so again from time to time, and hears whether it shall drain."""

    #: Protocols it speaks. Servers look at this first, so that they can answer what they understand nothing else of.
    protocols: tuple[int, ...] = (PROTOCOL_VERSION,)
    #: Names its process; no later process has the same.
    name: Name
    host: Annotated[str, Field(max_length=200)] = ""
    slots: Positive = 1
    #: It asks for work, and takes no wake-ups off the queue: nothing is put there for it.
    asks: bool = True
    #: Name of the image or release that it runs.
    image: Annotated[str, Field(max_length=200)] = ""
    versions: dict[str, str] = Field(default_factory=dict)


class HelloAnswer(Contract):
    protocol: int
    #: Under which name it claims: its own, bound to its credential.
    worker_id: Name
    server: dict[str, str] = Field(default_factory=dict)
    lease_ttl_ms: Positive
    #: Most bytes of one request, as it is after unpacking.
    max_request_bytes: Positive
    is_draining: bool = False


class WaitRequest(Contract):
    """Long poll for work: answered as soon as something is ready, or when the time is up."""

    worker_id: Name
    free: Positive
    timeout_ms: Annotated[int, Field(gt=0, le=60_000)] = 10_000


class WaitAnswer(Contract):
    """Jobs that may be claimed now. Others may have been told of them too."""

    jobs: tuple[WakeUp, ...] = ()
    is_draining: bool = False


class HandBackRequest(Contract):
    """A worker that ends lets go of all it holds."""

    worker_id: Name


class HandBackAnswer(Contract):
    jobs: Count


class EvidenceFile(Contract):
    """One file of a piece of evidence, or of its reading, as the server has it."""

    #: Below the evidence; empty: the evidence is this file.
    path: str
    size_bytes: Count
    changed_ns: int
    digest: Sha256
    #: Why the server itself cannot read it, as an errno; 0: it can.
    unreadable: Count = 0


class EvidenceRequest(Contract):
    """A page of the files of evidence that the leased job names."""

    job_id: Name
    fence: Positive
    #: The evidence's name in the job.
    name: Name
    part: Literal["content", "reading"] = "content"
    after: Count = 0


class EvidenceAnswer(Contract):
    files: tuple[EvidenceFile, ...]
    more: bool
    #: With the first page of the content: its manifest, whose digest is in the job's spec.
    manifest: JsonObject | None = None


class FilesRequest(Contract):
    """Small files by their numbers, one after the other in the answer; or a part of one."""

    job_id: Name
    fence: Positive
    name: Name
    part: Literal["content", "reading"] = "content"
    numbers: Annotated[tuple[int, ...], Field(min_length=1, max_length=10_000)]
    #: Where the only file is to begin.
    offset: Count = 0


class KeptAnswer(Contract):
    """How much of a file has arrived; all of it when it is kept."""

    received_bytes: Count
    is_kept: bool
