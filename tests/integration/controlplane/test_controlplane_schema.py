"""Migrations make the schema that the code uses."""

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from controlplane.adapters import migrate, schema, schema_access, sqlite
from controlplane.adapters.sql_store import SqlStore
from controlplane.errors import Unavailable


def test_the_migrated_database_is_the_schema(tmp_path):
    store = SqlStore(tmp_path / "custody.db")
    with store.database.reader.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert schema_access.metadata is schema.metadata
        assert compare_metadata(context, schema.metadata) == []
    store.close()


def test_the_newest_revision_is_the_one_the_code_expects():
    from pathlib import Path

    folder = Path(migrate.__file__).parent / "migrations"
    assert ScriptDirectory(str(folder)).get_current_head() == migrate.HEAD


def test_a_database_of_a_newer_release_is_refused(tmp_path):
    store = SqlStore(tmp_path / "custody.db")
    with store.database.writer.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    store.close()

    with pytest.raises(Unavailable, match="newer release"):
        SqlStore(tmp_path / "custody.db")


def test_stop_orders_and_receipts_are_written_through_to_the_disk(tmp_path):
    store = SqlStore(tmp_path / "custody.db")
    levels = []
    for engine in (store.database._full, store.database.writer):
        with engine.connect() as connection:
            levels.append(connection.exec_driver_sql("PRAGMA synchronous").scalar())
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
    assert levels == [2, 1]
    assert sqlite.version()[1]
    store.close()
