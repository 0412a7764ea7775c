"""Jobs that are parked: what for, until when, and what their tenant has already paid."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("job", sa.Column("tenant_settled", sa.Text(), nullable=True))
    op.add_column("job", sa.Column("parked", sa.Text(), nullable=True))
    op.add_column("job", sa.Column("not_before_ms", sa.BigInteger(), nullable=True))
