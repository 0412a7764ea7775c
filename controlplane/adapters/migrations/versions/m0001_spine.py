"""First schema: tasks, jobs, leases, traces, budgets, receipts, queue."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

#: Counts itself. SQLite does that for its own kind of integer only.
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "budget",
        sa.Column("budget_id", sa.String(length=200), nullable=False),
        sa.Column("limits", sa.Text(), nullable=False),
        sa.Column("spent_subcalls", sa.BigInteger(), nullable=False),
        sa.Column("spent_input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("spent_output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("spent_cost_nano_usd", sa.BigInteger(), nullable=False),
        sa.Column("held_subcalls", sa.BigInteger(), nullable=False),
        sa.Column("held_input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("held_output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("held_cost_nano_usd", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("budget_id"),
    )
    op.create_table(
        "command",
        sa.Column("command_id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("by", sa.String(length=200), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("command_id"),
    )
    op.create_index("command_by_job", "command", ["job_id", "command_id"], unique=False)
    op.create_table(
        "ledger",
        sa.Column("entry_id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("budget_id", sa.String(length=200), nullable=False),
        sa.Column("job_id", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("amount_subcalls", sa.BigInteger(), nullable=False),
        sa.Column("amount_input_tokens", sa.BigInteger(), nullable=False),
        sa.Column("amount_output_tokens", sa.BigInteger(), nullable=False),
        sa.Column("amount_cost_nano_usd", sa.BigInteger(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("entry_id"),
    )
    op.create_index("ledger_by_budget", "ledger", ["budget_id"], unique=False)
    op.create_table(
        "outbox",
        sa.Column("outbox_id", _NUMBER, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(length=200), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("outbox_id"),
    )
    op.create_table(
        "queue_message",
        sa.Column("message_id", sa.String(length=64), nullable=False),
        sa.Column("queue", sa.String(length=200), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("ready_ms", sa.BigInteger(), nullable=False),
        sa.Column("hidden_until_ms", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("deliveries", sa.BigInteger(), nullable=False),
        sa.Column("is_dead", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("message_id"),
    )
    op.create_index("queue_ready", "queue_message", ["queue", "is_dead", "ready_ms"], unique=False)
    op.create_table(
        "task",
        sa.Column("task_id", sa.String(length=200), nullable=False),
        sa.Column("tenant_id", sa.String(length=200), nullable=False),
        sa.Column("status", sa.String(length=40), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("event_head", sa.String(length=64), nullable=False),
        sa.Column("receipts", sa.BigInteger(), nullable=False),
        sa.Column("receipt_head", sa.String(length=64), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("task_id"),
    )
    op.create_table(
        "trace_event",
        sa.Column("job_id", sa.String(length=200), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=60), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("prev", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "seq"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "worker",
        sa.Column("worker_id", sa.String(length=200), nullable=False),
        sa.Column("first_seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("worker_id"),
    )
    op.create_table(
        "checkpoint",
        sa.Column("task_id", sa.String(length=200), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["task.task_id"],
        ),
        sa.PrimaryKeyConstraint("task_id", "seq"),
    )
    op.create_table(
        "event",
        sa.Column("task_id", sa.String(length=200), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=60), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("prev", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["task.task_id"],
        ),
        sa.PrimaryKeyConstraint("task_id", "seq"),
    )
    op.create_table(
        "job",
        sa.Column("job_id", sa.String(length=200), nullable=False),
        sa.Column("task_id", sa.String(length=200), nullable=False),
        sa.Column("step_id", sa.String(length=200), nullable=False),
        sa.Column("tenant_id", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=40), nullable=False),
        sa.Column("desired", sa.String(length=10), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("losses", sa.BigInteger(), nullable=False),
        sa.Column("max_attempts", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("is_leased", sa.Boolean(), nullable=False),
        sa.Column("stop", sa.Text(), nullable=True),
        sa.Column("settled_fence", sa.BigInteger(), nullable=False),
        sa.Column("result_digest", sa.String(length=64), nullable=False),
        sa.Column("spec_digest", sa.String(length=64), nullable=False),
        sa.Column("account", sa.Text(), nullable=False),
        sa.Column("tenant_hold", sa.Text(), nullable=True),
        sa.Column("refusal", sa.Text(), nullable=False),
        sa.Column("trace_events", sa.BigInteger(), nullable=False),
        sa.Column("trace_head", sa.String(length=64), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.Column("receipt_id", sa.String(length=64), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("updated_ms", sa.BigInteger(), nullable=False),
        sa.Column("recorded_ms", sa.BigInteger(), nullable=False),
        sa.Column("dispatched_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["task.task_id"],
        ),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_index("job_by_state", "job", ["state", "dispatched_ms"], unique=False)
    op.create_index("job_by_task", "job", ["task_id"], unique=False)
    op.create_table(
        "receipt",
        sa.Column("task_id", sa.String(length=200), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=60), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("prev", sa.String(length=64), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("receipt_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["task_id"],
            ["task.task_id"],
        ),
        sa.PrimaryKeyConstraint("task_id", "seq"),
        sa.UniqueConstraint("receipt_id"),
    )
    op.create_table(
        "attempt",
        sa.Column("job_id", sa.String(length=200), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("worker_id", sa.String(length=200), nullable=False),
        sa.Column("granted_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_ms", sa.BigInteger(), nullable=True),
        sa.Column("outcome", sa.String(length=40), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["job.job_id"],
        ),
        sa.PrimaryKeyConstraint("job_id", "attempt"),
    )
    op.create_table(
        "job_spec",
        sa.Column("job_id", sa.String(length=200), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["job.job_id"],
        ),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_table(
        "lease",
        sa.Column("job_id", sa.String(length=200), nullable=False),
        sa.Column("tenant_id", sa.String(length=200), nullable=False),
        sa.Column("worker_id", sa.String(length=200), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), nullable=False),
        sa.Column("granted_ms", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.Column("renewed_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["job_id"],
            ["job.job_id"],
        ),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_index("lease_by_tenant", "lease", ["tenant_id"], unique=False)
