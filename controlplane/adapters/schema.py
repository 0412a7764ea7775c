"""Tables of the store: the same on every database. Times are integer milliseconds, JSON is text, no triggers, no defaults in SQL."""

from typing import Any

import sqlalchemy as sa

from controlplane.adapters.words import Words

metadata = sa.MetaData()
_ID = sa.String(200)
#: Counts itself. SQLite does that for its own kind of integer only.
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_HASH = sa.String(64)


#: Sorts by bytes everywhere, so that one look after another finds every lane.
LANE = sa.String(1000).with_variant(sa.String(1000, collation="C"), "postgresql")


def _partial_index(name: str, *columns: sa.Column[Any], where: sa.ColumnElement[bool]) -> sa.Index:
    return sa.Index(name, *columns, sqlite_where=where, postgresql_where=where)


def _amounts(prefix: str) -> list[sa.Column[int]]:
    units = ("subcalls", "input_tokens", "output_tokens", "cost_nano_usd")
    return [sa.Column(f"{prefix}_{unit}", sa.BigInteger, nullable=False) for unit in units]


task = sa.Table(
    "task",
    metadata,
    sa.Column("task_id", _ID, primary_key=True),
    sa.Column("tenant_id", _ID, nullable=False),
    sa.Column("status", sa.String(40), nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("event_head", _HASH, nullable=False),
    sa.Column("receipts", sa.BigInteger, nullable=False),
    sa.Column("receipt_head", _HASH, nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("updated_ms", sa.BigInteger, nullable=False),
)
sa.Index("task_of_tenant", task.c.tenant_id, task.c.created_ms, task.c.task_id)
sa.Index("task_by_age", task.c.created_ms, task.c.task_id)

job = sa.Table(
    "job",
    metadata,
    sa.Column("job_id", _ID, primary_key=True),
    sa.Column("task_id", _ID, sa.ForeignKey("task.task_id"), nullable=False),
    sa.Column("step_id", _ID, nullable=False),
    sa.Column("tenant_id", _ID, nullable=False),
    sa.Column("state", sa.String(40), nullable=False),
    sa.Column("desired", sa.String(10), nullable=False),
    sa.Column("reason", Words, nullable=False),
    sa.Column("generation", sa.BigInteger, nullable=False),
    sa.Column("attempts", sa.BigInteger, nullable=False),
    sa.Column("losses", sa.BigInteger, nullable=False),
    sa.Column("max_attempts", sa.BigInteger, nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("is_leased", sa.Boolean, nullable=False),
    sa.Column("stop", sa.Text),
    sa.Column("settled_fence", sa.BigInteger, nullable=False),
    sa.Column("result_digest", sa.String(64), nullable=False),
    sa.Column("spec_digest", _HASH, nullable=False),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("tenant_hold", sa.Text),
    sa.Column("tenant_settled", sa.Text),
    sa.Column("parked", sa.Text),
    sa.Column("not_before_ms", sa.BigInteger),
    #: Higher goes first.
    sa.Column("priority", sa.BigInteger, nullable=False, server_default="0"),
    #: When the job must have ended.
    sa.Column("deadline_ms", sa.BigInteger),
    #: Who writes the cells, and who answers predict(): limits and kill switches of a model look for these.
    sa.Column("model", _ID, nullable=False, server_default=""),
    sa.Column("sub_model", _ID, nullable=False, server_default=""),
    #: W3C trace context of whoever submitted it.
    sa.Column("traceparent", sa.String(60), nullable=False, server_default=""),
    #: Set while the job is ready and was not sent: what it is chosen by.
    sa.Column("lane", LANE),
    #: Names of the tools it may use, separated by spaces: kill switches look for these.
    sa.Column("tools", sa.Text, nullable=False, server_default=""),
    #: How often its limits were changed.
    sa.Column("budget_version", sa.BigInteger, nullable=False, server_default="0"),
    #: Time without a record after which it counts as stuck; NULL: what the settings say.
    sa.Column("progress_ms", sa.BigInteger),
    sa.Column("refusal", Words, nullable=False),
    sa.Column("trace_events", sa.BigInteger, nullable=False),
    sa.Column("trace_head", _HASH, nullable=False),
    sa.Column("result", sa.Text, nullable=False),
    sa.Column("receipt_id", sa.String(64), nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("updated_ms", sa.BigInteger, nullable=False),
    sa.Column("recorded_ms", sa.BigInteger, nullable=False),
    sa.Column("dispatched_ms", sa.BigInteger, nullable=False),
)
sa.Index("job_by_state", job.c.state, job.c.dispatched_ms)
sa.Index("job_by_task", job.c.task_id)
_partial_index("job_ready", job.c.lane, job.c.created_ms, job.c.job_id, where=job.c.lane.is_not(None))
_partial_index("job_by_wait", job.c.state, job.c.not_before_ms, where=job.c.not_before_ms.is_not(None))
_partial_index("job_by_deadline", job.c.state, job.c.deadline_ms, where=job.c.deadline_ms.is_not(None))
#: Beginnings of ids: PostgreSQL sorts text for people otherwise, and finds no beginning in that.
sa.Index("job_by_beginning", job.c.job_id, postgresql_ops={"job_id": "varchar_pattern_ops"}).ddl_if(
    dialect="postgresql"
)
sa.Index("job_by_age", job.c.created_ms, job.c.job_id)
sa.Index("job_of_tenant", job.c.tenant_id, job.c.created_ms, job.c.job_id)
sa.Index("job_of_tenant_in_state", job.c.tenant_id, job.c.state, job.c.created_ms, job.c.job_id)

#: Words and labels of a job, so that a search reads what it shows and nothing else.
job_term = sa.Table(
    "job_term",
    metadata,
    sa.Column("tenant_id", _ID, primary_key=True),
    sa.Column("term", sa.String(100), primary_key=True),
    sa.Column("created_ms", sa.BigInteger, primary_key=True),
    sa.Column("job_id", _ID, primary_key=True),
    sqlite_with_rowid=False,
)

#: Apart from the job: it never changes, may be long, and is not needed to record.
job_spec = sa.Table(
    "job_spec",
    metadata,
    sa.Column("job_id", _ID, sa.ForeignKey("job.job_id"), primary_key=True),
    sa.Column("spec", sa.Text, nullable=False),
)

#: Apart from the job, so that a renewal touches one small row.
lease = sa.Table(
    "lease",
    metadata,
    sa.Column("job_id", _ID, sa.ForeignKey("job.job_id"), primary_key=True),
    sa.Column("tenant_id", _ID, nullable=False),
    sa.Column("worker_id", _ID, nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("attempt", sa.BigInteger, nullable=False),
    sa.Column("granted_ms", sa.BigInteger, nullable=False),
    sa.Column("until_ms", sa.BigInteger, nullable=False),
    sa.Column("renewed_ms", sa.BigInteger, nullable=False),
)
sa.Index("lease_by_tenant", lease.c.tenant_id)

attempt = sa.Table(
    "attempt",
    metadata,
    sa.Column("job_id", _ID, sa.ForeignKey("job.job_id"), primary_key=True),
    sa.Column("attempt", sa.BigInteger, primary_key=True),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("worker_id", _ID, nullable=False),
    sa.Column("granted_ms", sa.BigInteger, nullable=False),
    sa.Column("ended_ms", sa.BigInteger),
    sa.Column("outcome", sa.String(40), nullable=False),
)

worker = sa.Table(
    "worker",
    metadata,
    sa.Column("worker_id", _ID, primary_key=True),
    sa.Column("first_seen_ms", sa.BigInteger, nullable=False),
    sa.Column("last_seen_ms", sa.BigInteger, nullable=False),
    sa.Column("host", _ID, nullable=False, server_default=""),
    #: Jobs it works on at once; 0: it has not said.
    sa.Column("slots", sa.BigInteger, nullable=False, server_default="0"),
    #: Name of the image or release it runs; kill switches look for it.
    sa.Column("image", _ID, nullable=False, server_default=""),
    #: What it said about itself, as JSON.
    sa.Column("facts", sa.Text, nullable=False, server_default="{}"),
    sa.Column("is_draining", sa.Boolean, nullable=False, server_default=sa.false()),
    #: When it was found to be gone, or said goodbye.
    sa.Column("gone_ms", sa.BigInteger),
)

#: What only one process at a time does; it lasts until it is not renewed in time.
duty = sa.Table(
    "duty",
    metadata,
    sa.Column("name", _ID, primary_key=True),
    sa.Column("holder", sa.String(400), nullable=False),
    sa.Column("until_ms", sa.BigInteger, nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
)


def _chain(name: str, *more: sa.Column[str]) -> sa.Table:
    return sa.Table(
        name,
        metadata,
        sa.Column("task_id", _ID, sa.ForeignKey("task.task_id"), primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True),
        sa.Column("kind", sa.String(60), nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("prev", _HASH, nullable=False),
        sa.Column("hash", _HASH, nullable=False),
        *more,
    )


event = _chain("event", sa.Column("actor", _ID, nullable=False))
receipt = _chain("receipt", sa.Column("receipt_id", sa.String(64), nullable=False, unique=True))

checkpoint = sa.Table(
    "checkpoint",
    metadata,
    sa.Column("task_id", _ID, sa.ForeignKey("task.task_id"), primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("digest", _HASH, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    #: The task was over with it.
    sa.Column("is_terminal", sa.Boolean, nullable=False, server_default=sa.false()),
)

trace_event = sa.Table(
    "trace_event",
    metadata,
    sa.Column("job_id", _ID, primary_key=True),
    sa.Column("seq", sa.BigInteger, primary_key=True),
    sa.Column("kind", sa.String(60), nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("prev", _HASH, nullable=False),
    sa.Column("hash", _HASH, nullable=False),
    #: Marks of the long texts that `body` refers to; NULL: it holds them itself.
    sa.Column("texts", sa.Text),
    sqlite_with_rowid=False,
)

#: Long texts of trace events, each once for all jobs, under the hash of its bytes. Bytes, because no text type of a database
#: takes every text of a trace: half a surrogate pair, a zero.
trace_text = sa.Table(
    "trace_text",
    metadata,
    sa.Column("mark", _HASH, primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
)

budget = sa.Table(
    "budget",
    metadata,
    sa.Column("budget_id", _ID, primary_key=True),
    sa.Column("limits", sa.Text, nullable=False),
    *_amounts("spent"),
    *_amounts("held"),
)

ledger = sa.Table(
    "ledger",
    metadata,
    sa.Column("entry_id", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("budget_id", _ID, nullable=False),
    sa.Column("job_id", _ID, nullable=False),
    sa.Column("kind", sa.String(10), nullable=False),
    *_amounts("amount"),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
)
sa.Index("ledger_by_budget", ledger.c.budget_id)

#: Orders to a running job that are not stops; a steer is the only kind so far.
command = sa.Table(
    "command",
    metadata,
    sa.Column("command_id", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("job_id", _ID, nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("body", Words, nullable=False),
    sa.Column("by", _ID, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
)
sa.Index("command_by_job", command.c.job_id, command.c.command_id)

#: Kill switches: in force until released. Whoever starts anything reads them in its own transaction.
control_order = sa.Table(
    "control_order",
    metadata,
    sa.Column("order_id", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("scope_kind", sa.String(20), nullable=False),
    sa.Column("scope_id", _ID, nullable=False),
    #: Whose jobs it is limited to; empty: everybody's.
    sa.Column("tenant_id", _ID, nullable=False),
    sa.Column("action", sa.String(10), nullable=False),
    sa.Column("reason", Words, nullable=False),
    sa.Column("by", _ID, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("released_ms", sa.BigInteger),
    sa.Column("released_by", _ID, nullable=False, server_default=""),
    sa.Column("released_reason", Words, nullable=False, server_default=""),
)
sa.Index(
    "control_in_force", control_order.c.released_ms, control_order.c.scope_kind, control_order.c.scope_id
)

#: Orders from beside the store that were entered, so that each is entered once.
side_order = sa.Table(
    "side_order",
    metadata,
    sa.Column("mark", sa.String(64), primary_key=True),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
)

#: What a watchdog found, with its evidence and what was done about it.
finding = sa.Table(
    "finding",
    metadata,
    sa.Column("finding_id", _ID, primary_key=True),
    sa.Column("tenant_id", _ID, nullable=False),
    sa.Column("job_id", _ID, nullable=False),
    sa.Column("kind", sa.String(60), nullable=False),
    sa.Column("detail", Words, nullable=False),
    sa.Column("evidence", sa.Text, nullable=False),
    sa.Column("action", sa.String(20), nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("resolved_ms", sa.BigInteger),
)
sa.Index("finding_by_job", finding.c.job_id, finding.c.kind)
sa.Index("finding_of_tenant", finding.c.tenant_id, finding.c.at_ms)
sa.Index("finding_open", finding.c.resolved_ms, finding.c.kind)

#: Where old events of a chain are: in a blob, as compressed lines. `chain` says of what: event, trace.
archive = sa.Table(
    "archive",
    metadata,
    sa.Column("chain", sa.String(10), primary_key=True),
    sa.Column("owner_id", _ID, primary_key=True),
    sa.Column("first_seq", sa.BigInteger, primary_key=True),
    sa.Column("last_seq", sa.BigInteger, nullable=False),
    sa.Column("digest", _HASH, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
)

queue_message = sa.Table(
    "queue_message",
    metadata,
    sa.Column("message_id", sa.String(64), primary_key=True),
    sa.Column("queue", _ID, nullable=False),
    sa.Column("body", sa.LargeBinary, nullable=False),
    sa.Column("ready_ms", sa.BigInteger, nullable=False),
    sa.Column("hidden_until_ms", sa.BigInteger, nullable=False),
    sa.Column("fence", sa.BigInteger, nullable=False),
    sa.Column("deliveries", sa.BigInteger, nullable=False),
    sa.Column("is_dead", sa.Boolean, nullable=False),
)
sa.Index("queue_ready", queue_message.c.queue, queue_message.c.is_dead, queue_message.c.ready_ms)
