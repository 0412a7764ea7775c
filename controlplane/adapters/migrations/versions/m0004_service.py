"""A control plane of several machines and tenants: who may do what, kill switches, findings, cold storage, search."""

import sqlalchemy as sa
from alembic import op
from pydantic import ValidationError

from controlplane.domain.terms import terms_of
from rlm_worker.contracts import JobSpec

revision = "0004"
down_revision = "0003"

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
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("body", sa.Text(), server_default="", nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant_id", "principal", "key"),
    )
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
    op.create_index("upload_of_tenant", "upload", ["tenant_id", "at_ms"], unique=False)
