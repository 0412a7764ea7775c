"""What crosses between control plane and worker: frozen values, no unknown fields, pinned by golden wire files."""

from rlm_worker.contracts.base import PROTOCOL_VERSION, JsonObject, canonical, digest
from rlm_worker.contracts.job import Budget, EvidenceRef, JobSpec
from rlm_worker.contracts.result import JobResult, Usage
from rlm_worker.contracts.trace import TraceEvent, TraceRecord

__all__ = [
    "PROTOCOL_VERSION",
    "Budget",
    "EvidenceRef",
    "JobResult",
    "JobSpec",
    "JsonObject",
    "TraceEvent",
    "TraceRecord",
    "Usage",
    "canonical",
    "digest",
]
