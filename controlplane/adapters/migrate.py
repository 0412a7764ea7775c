"""Brings a database to the schema of this release, at start. Reads one row when it is there already."""

from pathlib import Path

import sqlalchemy as sa

from controlplane.adapters.databases import Database
from controlplane.errors import Unavailable

#: Newest revision under migrations/versions; a test holds the two together.
HEAD = "0004"


def migrate(database: Database) -> None:
    """Upgrade when due. Two processes that start at once do it one after the other."""
    with database.begin("read") as (connection, _):
        if _current(connection) == HEAD:
            return
    with database.alone() as connection:
        current = _current(connection)
        if current != HEAD:
            _upgrade(connection, current=current)


def _current(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()


def _upgrade(connection: sa.Connection, *, current: str | None) -> None:
    # Imported only here: it costs more than everything else at the start of a command.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    if current is not None and current > HEAD:
        raise Unavailable(
            f"the database is at schema {current}, this release knows {HEAD}: use the newer release that made it"
        )
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
