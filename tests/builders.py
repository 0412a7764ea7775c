"""Values for tests, with defaults: a spec, a claim, evidence. Every test names only what it is about."""

from pathlib import Path
from typing import Any

from rlm_worker.contracts import Budget, EvidenceRef, JobSpec
from rlm_worker.contracts.gateway import Claimed, Lease
from rlm_worker.contracts.job import ModelDriver, PlaybookDriver
from rlm_worker.contracts.signature import fields_schema

NO_MODEL = "http://127.0.0.1:9/v1#nobody"


def evidence_of(path: Path) -> EvidenceRef:
    """A reference to a file or folder as it lies on disk."""
    files = [path] if path.is_file() else [item for item in path.rglob("*") if item.is_file()]
    return EvidenceRef(
        name=path.name,
        kind="file" if path.is_file() else "tree",
        location=str(path.resolve()),
        manifest_digest="0" * 64,
        files=len(files),
        size_bytes=sum(item.stat().st_size for item in files),
    )


def a_spec(
    *, playbook: str | None = None, model: str = NO_MODEL, output: str = "answer: str", **fields: Any
) -> JobSpec:
    """A job that a model at `model` drives, or the given playbook."""
    driver = (
        PlaybookDriver(name="test", source=playbook) if playbook is not None else ModelDriver(model=model)
    )
    given = {
        "job_id": "job-1",
        "tenant_id": "local",
        "task_id": "task-1",
        "step_id": "analyze",
        "task": "What is in the evidence?",
        "output_schema": fields_schema(output),
        "budget": Budget(),
        "driver": driver,
        "sub_model": model,
    }
    return JobSpec.model_validate({**given, **fields})


def a_claim(spec: JobSpec, **fields: Any) -> Claimed:
    lease = Lease(
        job_id=spec.job_id, attempt=fields.pop("attempt", 1), fence=fields.pop("fence", 1), ttl_ms=15_000
    )
    return Claimed(spec=spec, lease=lease, **fields)
