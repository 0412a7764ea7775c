"""Every operation of the API as a request: its address with ids of somebody, its body, and what it needs."""

from dataclasses import dataclass, field
from typing import Any

from tests.integration.api.scene import a_job

#: Ids of the right form that nobody has.
NOTHING = {
    "job_id": "job_00000000000000000000",
    "ready_job_id": "job_00000000000000000001",
    "asking_job_id": "job_00000000000000000002",
    "task_id": "task_0000000000000000000",
    "upload_id": "upl_00000000000000000000",
    "digest": "0" * 64,
    "content": "1" * 64,
    "path": "out/nothing.txt",
    "key_id": "0123456789abcdef",
    "tenant_id": "nobody",
    "switch_id": "1000000",
    "worker_id": "nowhere/b/1/1",
    "permission_id": "prm_00000000000000000000",
}
REASON = {"reason": "because"}


@dataclass(frozen=True)
class Operation:
    #: The capability that it needs of who owns what it names; empty: none.
    needs: str = ""
    #: Its body; `{name}` stands for an id.
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    #: Which of a tenant's jobs it is about.
    job: str = "job_id"
    #: For those who look after every tenant alone.
    is_platform: bool = False
    #: What a request that is carried out is answered.
    status: int = 200
    #: It names nothing of anybody's.
    is_list: bool = False


OPERATIONS: dict[str, Operation] = {
    "submit_job": Operation(
        "job.submit", a_job(task_id="{task_id}", evidence=[{"digest": "{digest}"}]), status=201
    ),
    "list_jobs": Operation("job.read", is_list=True),
    "get_job": Operation("job.read"),
    "list_attempts": Operation("job.read"),
    "read_trace": Operation("trace.read"),
    "get_result": Operation("job.read"),
    "list_questions": Operation("job.read", job="asking_job_id"),
    "list_receipts": Operation("job.read"),
    "follow_job": Operation("trace.read"),
    "stop_job": Operation("job.stop", REASON, job="ready_job_id"),
    "kill_job": Operation("job.stop", REASON, job="ready_job_id"),
    "pause_job": Operation("job.stop", REASON, job="ready_job_id"),
    "resume_job": Operation("job.submit", REASON, job="ready_job_id"),
    "steer_job": Operation("job.steer", {"text": "look closer"}, job="ready_job_id"),
    "fork_job": Operation("job.fork", {}, status=422),
    "answer_job": Operation("job.answer", {"value": "this"}, job="asking_job_id"),
    "order_jobs": Operation("job.stop", {"verb": "stop", "ids": ["{ready_job_id}"]}, is_list=True),
    "list_tasks": Operation("job.read", is_list=True),
    "get_task": Operation("job.read"),
    "begin_upload": Operation(
        "evidence.write", {"sha256": "{content}", "size_bytes": 13}, is_list=True, status=0
    ),
    "get_upload": Operation("evidence.write"),
    "send_piece": Operation(
        "evidence.write",
        b"a piece",
        {"Upload-Offset": "0", "Content-Type": "application/octet-stream"},
    ),
    "make_evidence": Operation(
        "evidence.write", {"name": "e", "files": [{"path": "e", "sha256": "{content}"}]}, status=201
    ),
    "get_evidence": Operation("evidence.read"),
    "list_artifacts": Operation("job.read"),
    "get_artifact": Operation("content.read"),
    "whoami": Operation(is_list=True),
    "list_keys": Operation("key.manage", is_list=True),
    "issue_key": Operation(
        "key.manage",
        {"principal": "x", "roles": ["viewer"], "tenant_id": "{tenant_id}"},
        status=201,
    ),
    "revoke_key": Operation("key.manage"),
    "list_tenants": Operation("job.read", is_list=True),
    "create_tenant": Operation("tenant.manage", {"tenant_id": "{tenant_id}"}, is_platform=True, status=422),
    "change_tenant": Operation("tenant.manage", {"weight": 2}, is_platform=True),
    "list_permissions": Operation("key.manage", is_list=True),
    "give_permission": Operation(
        "key.manage",
        {
            "subject": "x",
            "capability": "job.stop",
            "effect": "deny",
            "tenant_id": "{tenant_id}",
        },
        status=201,
    ),
    "revoke_permission": Operation("key.manage"),
    "read_audit": Operation("audit.read", is_list=True),
    "list_budgets": Operation("budget.read", is_list=True),
    "set_budget": Operation("budget.set", {"subcalls": 5}, is_platform=True),
    "retune_job": Operation("job.retune", {"budget": {"max_subcalls": 20}, **REASON}, job="ready_job_id"),
    "retry_job": Operation("job.operate", REASON, status=422),
    "complete_job": Operation(
        "job.operate", {"output": {"answer": "x"}, **REASON}, job="asking_job_id", status=200
    ),
    "list_switches": Operation("switch.read", is_list=True),
    "engage_switch": Operation(
        "switch.engage",
        {"scope_kind": "task", "scope_id": "{task_id}", "action": "pause", **REASON},
        status=201,
    ),
    "release_switch": Operation("switch.release", REASON),
    "list_findings": Operation("job.read", is_list=True),
    "get_monitors": Operation("job.read", is_list=True),
    "get_case": Operation("trace.read"),
    "list_workers": Operation("worker.read", is_list=True),
    "drain_worker": Operation("worker.drain", {"draining": True}, is_platform=True),
    "is_alive": Operation(is_list=True),
    "is_ready": Operation(is_list=True),
    "get_version": Operation(is_list=True),
}


def filled(value: Any, ids: dict[str, str]) -> Any:
    """A body with somebody's ids in it."""
    if isinstance(value, str) and value.startswith("{"):
        return ids[value.strip("{}")]
    if isinstance(value, dict):
        return {name: filled(item, ids) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [filled(item, ids) for item in value]
    return value


def documented(document: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Method and address of every operation."""
    return {
        operation["operationId"]: (method.upper(), path)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }


def send(client: Any, where: tuple[str, str], operation: Operation, ids: dict[str, str]) -> Any:
    """One operation with somebody's ids."""
    method, path = where
    address = path.format(**{**ids, "job_id": ids[operation.job]})
    body = operation.body
    if isinstance(body, bytes):
        return client.request(method, address, content=body, headers=operation.headers)
    return client.request(method, address, json=None if body is None else filled(body, ids))
