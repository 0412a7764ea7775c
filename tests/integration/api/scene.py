"""What tests of the API send: a job to submit, a file to bring in, and everything that a tenant can have."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

from controlplane.bootstrap import App
from rlm_worker.contracts.gateway import ParkRequest
from rlm_worker.contracts.keeping import QuestionAsked
from rlm_worker.contracts.result import ArtifactRef
from rlm_worker.contracts.signature import fields_schema
from rlm_worker.contracts.trace import AttemptStarted, CellProposed
from tests.integration.controlplane.hands import Hands

NO_MODEL = "nowhere:nobody"


def a_job(**fields: Any) -> dict[str, Any]:
    given = {
        "task": "What is in the evidence?",
        "output_schema": fields_schema("answer: str"),
        "driver": {"kind": "playbook", "name": "test", "source": "SUBMIT(answer='x')"},
        "sub_model": NO_MODEL,
        "budget": {"max_subcalls": 10},
    }
    return {**given, **fields}


def upload(client: Any, content: bytes) -> str:
    """Bring a file in; gives its digest."""
    digest = hashlib.sha256(content).hexdigest()
    begun = client.post("/v1/uploads", json={"sha256": digest, "size_bytes": len(content)}).json()
    if not begun["is_complete"]:
        sent = client.patch(
            f"/v1/uploads/{begun['upload_id']}",
            content=content,
            headers={"Upload-Offset": "0", "Content-Type": "application/octet-stream"},
        )
        assert sent.json()["is_complete"], sent.text
    return digest


def evidence(client: Any, content: bytes, *, name: str = "notes.txt") -> str:
    """Make evidence of a file; gives its digest."""
    made = client.post(
        "/v1/evidence", json={"name": name, "files": [{"path": name, "sha256": upload(client, content)}]}
    )
    assert made.status_code == 201, made.text
    return made.json()["digest"]


def finished_job(app: App, client: Any, **fields: Any) -> str:
    """A job that has ended, with a trace, a result and an artifact."""
    job_id = client.post("/v1/jobs", json=a_job(**fields)).json()["job_id"]
    hands = Hands(gateway=app.gateway(), job_id=job_id)
    hands.claim()
    hands.record(AttemptStarted(attempt=1, worker_id=hands.worker_id))
    hands.record(CellProposed(iteration=1, driver="playbook", code="secret_of_a_cell()"))
    content = b"made by a job"
    digest = hashlib.sha256(content).hexdigest()
    app.settings.artifacts.mkdir(exist_ok=True)
    (app.settings.artifacts / digest).write_bytes(content)
    ref = ArtifactRef(path="out/made.txt", digest=digest, size_bytes=len(content))
    hands.settle(artifact_refs=(ref,), structured_output={"answer": "secret of an answer"})
    return job_id


def asking_job(app: App, client: Any) -> str:
    """A job that waits for an answer of a person."""
    job_id = client.post("/v1/jobs", json=a_job()).json()["job_id"]
    hands = Hands(gateway=app.gateway(), job_id=job_id)
    hands.claim()
    hands.record(
        QuestionAsked(
            iteration=1, ordinal=1, key="a" * 64, question="Which one?", answer_schema={"type": "string"}
        )
    )
    hands.gateway.park(ParkRequest(job_id=job_id, fence=hands.fence, reason="asked"))
    return job_id


def belongings(app: App, client: Callable[..., Any], *, tenant: str) -> dict[str, str]:
    """One of everything that a tenant can have, by the names of parameters."""
    admin = client("admin", "operator", tenant=tenant, name=f"admin-of-{tenant}")
    content = f"evidence of {tenant}".encode()
    job_id = finished_job(app, admin)
    key = admin.post("/v1/keys", json={"principal": f"someone-of-{tenant}", "roles": ["viewer"]}).json()
    wish = {"subject": "role:viewer", "capability": "job.stop", "effect": "deny"}
    permission = admin.post("/v1/permissions", json=wish).json()
    switch = {"scope_kind": "job", "scope_id": job_id, "action": "pause", "reason": "for a test"}
    engaged = admin.post("/v1/switches", json=switch).json()
    open_upload = {"sha256": hashlib.sha256(tenant.encode()).hexdigest(), "size_bytes": 1_000}
    return {
        "job_id": job_id,
        "ready_job_id": admin.post("/v1/jobs", json=a_job(labels={"of": tenant})).json()["job_id"],
        "asking_job_id": asking_job(app, admin),
        "task_id": admin.get(f"/v1/jobs/{job_id}").json()["task_id"],
        "upload_id": admin.post("/v1/uploads", json=open_upload).json()["upload_id"],
        "digest": evidence(admin, content),
        "content": hashlib.sha256(content).hexdigest(),
        "path": "out/made.txt",
        "worker_id": "elsewhere/b/1/1",
        "key_id": key["key_id"],
        "tenant_id": tenant,
        "permission_id": permission["permission_id"],
        "switch_id": str(engaged["order_id"]),
    }


def rows_of(app: App, tenant: str) -> str:
    """Everything that the store holds of a tenant, but for when its keys were used."""
    import sqlalchemy as sa

    from controlplane.adapters import schema, schema_access

    assert schema_access.metadata is schema.metadata
    found: dict[str, Any] = {}
    with app.store.read() as tx:
        connection = tx.tenants._connection
        jobs = sa.select(schema.job.c.job_id).where(schema.job.c.tenant_id == tenant)
        tasks = sa.select(schema.task.c.task_id).where(schema.task.c.tenant_id == tenant)
        for table in schema.metadata.sorted_tables:
            if "tenant_id" in table.c:
                chosen = table.c.tenant_id == tenant
            elif "job_id" in table.c:
                chosen = table.c.job_id.in_(jobs)
            elif "task_id" in table.c:
                chosen = table.c.task_id.in_(tasks)
            elif "budget_id" in table.c:
                chosen = table.c.budget_id == f"tenant:{tenant}"
            else:
                continue
            columns = [column for column in table.c if column.name != "used_ms"]
            rows = connection.execute(sa.select(*columns).where(chosen)).all()
            found[table.name] = sorted(map(str, rows))
    return json.dumps(found, indent=1)
