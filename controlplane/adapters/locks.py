"""Locks on what is no row: whoever counts rows, or looks for the absence of one, must be sure that none is added meanwhile."""

import hashlib

import sqlalchemy as sa


def lock(connection: sa.Connection, name: str, *, is_shared: bool = False) -> None:
    """Hold a name until the transaction ends, alone or with others who share it. On SQLite a writer is alone anyway."""
    if connection.dialect.name != "postgresql":
        return
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
    take = sa.func.pg_advisory_xact_lock_shared if is_shared else sa.func.pg_advisory_xact_lock
    connection.execute(sa.select(take(number)))
