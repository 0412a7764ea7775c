"""A control plane of several machines and tenants: who may do what, kill switches, findings, cold storage, search."""

import sqlalchemy as sa
from alembic import op
from pydantic import ValidationError

from controlplane.domain.terms import terms_of
from rlm_worker.contracts import JobSpec

revision = "0004"
down_revision = "0003"

_LANE = sa.String(length=1000).with_variant(sa.String(length=1000, collation="C"), "postgresql")
#: Counts itself. SQLite does that for its own kind of integer only.
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _jobs_and_workers()
    _control()
    _people()
    _requests()
    _find_jobs_by_words()


def _find_jobs_by_words() -> None:
    """Jobs that were submitted before there was a search are found like the others."""
    connection = op.get_bind()
    job = sa.table("job", sa.column("job_id"), sa.column("tenant_id"), sa.column("created_ms"))
    spec = sa.table("job_spec", sa.column("job_id"), sa.column("spec"))
    term = sa.table("job_term", *(sa.column(name) for name in ("tenant_id", "term", "created_ms", "job_id")))
    known = sa.select(job.c.job_id, job.c.tenant_id, job.c.created_ms, spec.c.spec)
    known = known.join(spec, spec.c.job_id == job.c.job_id).order_by(job.c.job_id).limit(500)
    page = connection.execute(known).all()
    while page:
        rows = [
            {"tenant_id": each.tenant_id, "term": found, "created_ms": each.created_ms, "job_id": each.job_id}
            for each in page
            for found in _terms(each.spec)
        ]
        if rows:
            connection.execute(sa.insert(term), rows)
        page = connection.execute(known.where(job.c.job_id > page[-1].job_id)).all()


def _terms(spec: str) -> tuple[str, ...]:
    try:
        return terms_of(JobSpec.model_validate_json(spec))
    except ValidationError:
        # It cannot be read by this release at all, and so not be shown either.
        return ()


def _jobs_and_workers() -> None:
    op.create_table(
        "job_term",
        sa.Column("tenant_id", sa.String(length=200), nullable=False),
        sa.Column("term", sa.String(length=100), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.String(length=200), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "term", "created_ms", "job_id"),
        sqlite_with_rowid=False,
    )
    op.add_column("job", sa.Column("priority", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("job", sa.Column("deadline_ms", sa.BigInteger(), nullable=True))
    op.add_column("job", sa.Column("model", sa.String(length=200), server_default="", nullable=False))
    op.add_column("job", sa.Column("sub_model", sa.String(length=200), server_default="", nullable=False))
    op.create_index("task_of_tenant", "task", ["tenant_id", "created_ms", "task_id"], unique=False)
    op.create_index("task_by_age", "task", ["created_ms", "task_id"], unique=False)
    op.add_column("job", sa.Column("traceparent", sa.String(length=60), server_default="", nullable=False))
    op.add_column("job", sa.Column("lane", _LANE, nullable=True))
    _index_where("job_ready", ["lane", "created_ms", "job_id"], is_set="lane")
    _index_where("job_by_wait", ["state", "not_before_ms"], is_set="not_before_ms")
    _index_where("job_by_deadline", ["state", "deadline_ms"], is_set="deadline_ms")
    # The row of a job is its outbox now.
    op.drop_table("outbox")
    # What waits to be sent counts as sent long ago: it is put back, and into its lane, when it seems lost.
    op.execute("UPDATE job SET dispatched_ms = 1 WHERE state = 'queued' AND dispatched_ms = 0")
    op.add_column("job", sa.Column("tools", sa.Text(), server_default="", nullable=False))
    op.add_column("job", sa.Column("budget_version", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("job", sa.Column("progress_ms", sa.BigInteger(), nullable=True))
    if op.get_bind().dialect.name == "postgresql":
        op.create_index(
            "job_by_beginning", "job", ["job_id"], postgresql_ops={"job_id": "varchar_pattern_ops"}
        )
    op.create_index("job_by_age", "job", ["created_ms", "job_id"], unique=False)
    op.create_index("job_of_tenant", "job", ["tenant_id", "created_ms", "job_id"], unique=False)
    op.create_index(
        "job_of_tenant_in_state", "job", ["tenant_id", "state", "created_ms", "job_id"], unique=False
    )
    op.add_column(
        "checkpoint", sa.Column("is_terminal", sa.Boolean(), server_default=sa.false(), nullable=False)
    )
    op.add_column("worker", sa.Column("host", sa.String(length=200), server_default="", nullable=False))
    op.add_column("worker", sa.Column("slots", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("worker", sa.Column("image", sa.String(length=200), server_default="", nullable=False))
    op.add_column("worker", sa.Column("facts", sa.Text(), server_default="{}", nullable=False))
    op.add_column("worker", sa.Column("is_draining", sa.Boolean(), server_default=sa.false(), nullable=False))

    op.add_column("worker", sa.Column("gone_ms", sa.BigInteger(), nullable=True))
    op.create_table(
        "duty",
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("holder", sa.String(length=400), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def _index_where(name: str, columns: list[str], *, is_set: str) -> None:
    where = sa.text(f"{is_set} IS NOT NULL")
    op.create_index(name, "job", columns, unique=False, sqlite_where=where, postgresql_where=where)


def _control() -> None:
    op.create_table(
        "archive",
        sa.Column("chain", sa.String(length=10), nullable=False),
        sa.Column("owner_id", sa.String(length=200), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("chain", "owner_id", "first_seq"),
    )
    op.create_table(
        "control_order",
        sa.Column("order_id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("scope_kind", sa.String(length=20), nullable=False),
        sa.Column("scope_id", sa.String(length=200), nullable=False),
        sa.Column("tenant_id", sa.String(length=200), nullable=False),
        sa.Column("action", sa.String(length=10), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("by", sa.String(length=200), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("released_ms", sa.BigInteger(), nullable=True),
        sa.Column("released_by", sa.String(length=200), server_default="", nullable=False),
        sa.Column("released_reason", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("order_id"),
    )
    op.create_index(
        "control_in_force", "control_order", ["released_ms", "scope_kind", "scope_id"], unique=False
    )
    op.create_table(
        "finding",
        sa.Column("finding_id", sa.String(length=200), nullable=False),
        sa.Column("tenant_id", sa.String(length=200), nullable=False),
        sa.Column("job_id", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=60), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("action", sa.String(length=20), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("resolved_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("finding_id"),
    )
    op.create_index("finding_by_job", "finding", ["job_id", "kind"], unique=False)
    op.create_index("finding_of_tenant", "finding", ["tenant_id", "at_ms"], unique=False)
    op.create_index("finding_open", "finding", ["resolved_ms", "kind"], unique=False)
    op.create_table(
        "side_order",
        sa.Column("mark", sa.String(length=64), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("mark"),
    )


def _people() -> None:
    op.create_table(
        "api_key",
        sa.Column("key_id", sa.String(length=200), nullable=False),
        sa.Column("tenant_id", sa.String(length=200), nullable=False),
        sa.Column("principal", sa.String(length=200), nullable=False),
        sa.Column("roles", sa.Text(), nullable=False),
        sa.Column("secret_hash", sa.String(length=64), nullable=False),
        sa.Column("note", sa.Text(), server_default="", nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(length=200), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=True),
        sa.Column("revoked_ms", sa.BigInteger(), nullable=True),
        sa.Column("revoked_by", sa.String(length=200), server_default="", nullable=False),
        sa.Column("used_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("key_id"),
    )
    op.create_index("api_key_of_tenant", "api_key", ["tenant_id", "created_ms"], unique=False)
    op.create_table(
        "audit",
        sa.Column("audit_id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("tenant_id", sa.String(length=200), nullable=False),
        sa.Column("principal", sa.String(length=200), nullable=False),
        sa.Column("action", sa.String(length=60), nullable=False),
        sa.Column("target", sa.String(length=200), nullable=False),
        sa.Column("outcome", sa.String(length=20), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("audit_id"),
    )
    op.create_index("audit_of_tenant", "audit", ["tenant_id", "audit_id"], unique=False)
    op.create_table(
        "permission",
        sa.Column("permission_id", sa.String(length=200), nullable=False),
        sa.Column("tenant_id", sa.String(length=200), nullable=False),
        sa.Column("subject", sa.String(length=200), nullable=False),
        sa.Column("capability", sa.String(length=60), nullable=False),
        sa.Column("effect", sa.String(length=10), nullable=False),
        sa.Column("constraints", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("created_by", sa.String(length=200), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=True),
        sa.Column("revoked_ms", sa.BigInteger(), nullable=True),
        sa.Column("revoked_by", sa.String(length=200), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("permission_id"),
    )
    op.create_index("permission_of_subject", "permission", ["tenant_id", "subject"], unique=False)
    op.create_table(
        "tenant",
        sa.Column("tenant_id", sa.String(length=200), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("is_suspended", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("max_jobs", sa.BigInteger(), nullable=True),
        sa.Column("weight", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id"),
    )


def _requests() -> None:
    op.create_table(
        "owned",
        sa.Column("tenant_id", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "kind", "digest"),
    )
    op.create_table(
        "repeated",
        sa.Column("tenant_id", sa.String(length=200), nullable=False),
        sa.Column("principal", sa.String(length=200), nullable=False),
        sa.Column("key", sa.String(length=200), nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("owner", sa.String(length=64), nullable=False),
        sa.Column("is_done", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("body", sa.Text(), server_default="", nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "principal", "key"),
    )
    op.create_index("repeated_by_age", "repeated", ["at_ms"], unique=False)
    op.create_table(
        "upload",
        sa.Column("upload_id", sa.String(length=200), nullable=False),
        sa.Column("tenant_id", sa.String(length=200), nullable=False),
        sa.Column("principal", sa.String(length=200), nullable=False),
        sa.Column("content_digest", sa.String(length=64), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("received_bytes", sa.BigInteger(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("done_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("upload_id"),
    )
    op.create_index("upload_of_tenant", "upload", ["tenant_id", "content_digest"], unique=False)
    op.create_index("upload_by_age", "upload", ["done_ms", "at_ms"], unique=False)
