"""What tests of the API send: a job to submit, a file to bring in, and everything that a tenant can have."""

import hashlib
from typing import Any

from rlm_worker.contracts.signature import fields_schema

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
