"""Tables of who may do what: tenants, keys, grants, refusals on record, repeated requests, evidence that was brought in."""

import sqlalchemy as sa

from controlplane.adapters.schema import metadata
from controlplane.adapters.words import Words

_ID = sa.String(200)
_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_HASH = sa.String(64)

tenant = sa.Table(
    "tenant",
    metadata,
    sa.Column("tenant_id", _ID, primary_key=True),
    sa.Column("name", Words, nullable=False),
    sa.Column("is_suspended", sa.Boolean, nullable=False, server_default=sa.false()),
    #: Jobs of it at work at once; NULL: what the settings say.
    sa.Column("max_jobs", sa.BigInteger),
    #: Its share of the workers, beside the others'.
    sa.Column("weight", sa.BigInteger, nullable=False, server_default="1"),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
)

#: The secret itself is nowhere: only its hash, which is enough since it is long and random.
api_key = sa.Table(
    "api_key",
    metadata,
    sa.Column("key_id", _ID, primary_key=True),
    #: Empty: of no tenant, for those who look after all of them.
    sa.Column("tenant_id", _ID, nullable=False),
    sa.Column("principal", _ID, nullable=False),
    sa.Column("roles", sa.Text, nullable=False),
    sa.Column("secret_hash", _HASH, nullable=False),
    sa.Column("note", Words, nullable=False, server_default=""),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("created_by", _ID, nullable=False),
    sa.Column("expires_ms", sa.BigInteger),
    sa.Column("revoked_ms", sa.BigInteger),
    sa.Column("revoked_by", _ID, nullable=False, server_default=""),
    sa.Column("used_ms", sa.BigInteger),
)
sa.Index("api_key_of_tenant", api_key.c.tenant_id, api_key.c.created_ms)

#: Permissions beyond those of roles, each with constraints and an end.
permission = sa.Table(
    "permission",
    metadata,
    sa.Column("permission_id", _ID, primary_key=True),
    sa.Column("tenant_id", _ID, nullable=False),
    #: A principal, or `role:NAME`.
    sa.Column("subject", _ID, nullable=False),
    sa.Column("capability", sa.String(60), nullable=False),
    #: `allow` adds to what roles allow, `deny` takes away.
    sa.Column("effect", sa.String(10), nullable=False),
    sa.Column("constraints", sa.Text, nullable=False),
    sa.Column("created_ms", sa.BigInteger, nullable=False),
    sa.Column("created_by", _ID, nullable=False),
    sa.Column("expires_ms", sa.BigInteger),
    sa.Column("revoked_ms", sa.BigInteger),
    sa.Column("revoked_by", _ID, nullable=False, server_default=""),
)
sa.Index("permission_of_subject", permission.c.tenant_id, permission.c.subject)

#: Acts of people and programs on the control plane, refusals above all.
audit = sa.Table(
    "audit",
    metadata,
    sa.Column("audit_id", _NUMBER, primary_key=True, autoincrement=True),
    sa.Column("tenant_id", _ID, nullable=False),
    sa.Column("principal", _ID, nullable=False),
    sa.Column("action", sa.String(60), nullable=False),
    sa.Column("target", _ID, nullable=False),
    sa.Column("outcome", sa.String(20), nullable=False),
    sa.Column("reason", Words, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
)
sa.Index("audit_of_tenant", audit.c.tenant_id, audit.c.audit_id)

#: Answers to requests that named a key, so that the same request again is answered the same.
repeated = sa.Table(
    "repeated",
    metadata,
    sa.Column("tenant_id", _ID, primary_key=True),
    sa.Column("principal", _ID, primary_key=True),
    sa.Column("key", _ID, primary_key=True),
    sa.Column("request_digest", _HASH, nullable=False),
    #: Who carries it out; who took it over from another has another mark, and the other can finish nothing.
    sa.Column("owner", sa.String(64), nullable=False),
    #: Set in the transaction that does what was asked for.
    sa.Column("is_done", sa.Boolean, nullable=False, server_default=sa.false()),
    #: NULL until the answer is kept.
    sa.Column("status", sa.Integer),
    sa.Column("body", sa.Text, nullable=False, server_default=""),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
)

sa.Index("repeated_by_age", repeated.c.at_ms)

#: Files on their way in, piece by piece.
upload = sa.Table(
    "upload",
    metadata,
    sa.Column("upload_id", _ID, primary_key=True),
    sa.Column("tenant_id", _ID, nullable=False),
    sa.Column("principal", _ID, nullable=False),
    sa.Column("content_digest", _HASH, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("received_bytes", sa.BigInteger, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
    sa.Column("done_ms", sa.BigInteger),
)
sa.Index("upload_of_tenant", upload.c.tenant_id, upload.c.content_digest)
sa.Index("upload_by_age", upload.c.done_ms, upload.c.at_ms)

#: Who may refer to a blob or to a piece of staged evidence: content is shared, the right to name it is not.
owned = sa.Table(
    "owned",
    metadata,
    sa.Column("tenant_id", _ID, primary_key=True),
    #: blob or evidence.
    sa.Column("kind", sa.String(20), primary_key=True),
    sa.Column("digest", _HASH, primary_key=True),
    sa.Column("facts", sa.Text, nullable=False),
    sa.Column("at_ms", sa.BigInteger, nullable=False),
)
