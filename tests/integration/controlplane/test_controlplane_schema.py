"""Migrations make the schema that the code uses."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from controlplane.adapters import migrate, schema, schema_access, sqlite
from controlplane.adapters.databases import Place, open_database, skew_ms
from controlplane.adapters.sql_store import SqlStore
from controlplane.errors import Unavailable
from tests.servers import postgres_database


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path) -> Place:
    return postgres_database() if request.param == "postgres" else tmp_path / "custody.db"


def test_the_migrated_database_is_the_schema(place):
    store = SqlStore(place)
    with store.database.reader.connect() as connection:
        # An index of one database only: what compares does not know that the other has none.
        here = lambda _, name, *__: name != "job_by_beginning" or connection.dialect.name == "postgresql"  # noqa: E731
        context = MigrationContext.configure(connection, opts={"compare_type": True, "include_object": here})
        assert schema_access.metadata is schema.metadata
        assert compare_metadata(context, schema.metadata) == []
    store.close()


def test_processes_that_start_at_once_make_the_schema_once(place):
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(SqlStore, [place] * 4))
    with stores[0].write() as tx:
        assert tx.duties.take("d", holder="me", ttl_ms=60_000)
    for store in stores:
        with store.read() as tx:
            assert tx.duties.holder("d") == "me"
        store.close()


def test_the_clock_of_a_database_on_this_host_is_this_hosts(place):
    database = open_database(place)
    assert abs(skew_ms(database)) < 1_000
    database.close()


def test_the_newest_revision_is_the_one_the_code_expects():
    from pathlib import Path

    folder = Path(migrate.__file__).parent / "migrations"
    assert ScriptDirectory(str(folder)).get_current_head() == migrate.HEAD


def test_a_database_of_a_newer_release_is_refused(place):
    store = SqlStore(place)
    with store.database.writer.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    store.close()

    with pytest.raises(Unavailable, match="newer release"):
        SqlStore(place)


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
