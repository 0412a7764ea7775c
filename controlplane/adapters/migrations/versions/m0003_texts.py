"""Long texts of traces, each kept once. Events that are there already keep theirs: they are read as they are."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "trace_text",
        sa.Column("mark", sa.String(64), nullable=False, primary_key=True),
        sa.Column("content", sa.LargeBinary(), nullable=False),
    )
    op.add_column("trace_event", sa.Column("texts", sa.Text(), nullable=True))
