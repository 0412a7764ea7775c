"""A database server that is restarted, killed, or not there."""

from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa

from controlplane.adapters.sql_store import SqlStore
from controlplane.bootstrap import App, open_app
from controlplane.config import Settings, load_settings, setting_rows
from controlplane.domain.budget import Account, Amounts
from controlplane.errors import InvalidRequest, Unavailable
from tests.integration.controlplane.hands import Hands, a_request
from tests.servers import Postgres


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """With fsync: what it says is on the disk, is."""
    started = Postgres(fsync=True).start()
    yield started
    started.close()


@pytest.fixture
def settings(server, tmp_path) -> Settings:
    return Settings(home=tmp_path / "home", database_url=server.new_database())


@pytest.fixture
def app(settings) -> Iterator[App]:
    opened = open_app(settings)
    yield opened
    opened.close()


def test_a_restarted_server_is_found_again_by_writers_readers_and_waiters(app, server):
    hands = Hands(app.gateway(), app.submit(a_request()).job_id)
    with app.store.watch() as watch:
        watch.read(hands.job_id, steer_seen=0)
        hands.claim()
        server.stop()
        with pytest.raises(Unavailable, match="did not answer"):
            app.job(hands.job_id)
        with pytest.raises(Unavailable):
            watch.read(hands.job_id, steer_seen=0)
        server.start()

        hands.record()
        watch.read(hands.job_id, steer_seen=0)
        app.stop(hands.job_id)
        assert watch.wait(timeout=5)
        orders, _ = watch.read(hands.job_id, steer_seen=0)
        assert orders.desired == "stop"
    hands.settle()
    assert app.job(hands.job_id).is_terminal


def test_what_was_written_in_full_survives_the_death_of_the_server(settings, server):
    app = open_app(settings)
    hands = Hands(app.gateway(), app.submit(a_request()).job_id)
    hands.work()
    server.kill()
    server.start()

    assert app.job(hands.job_id).state == "succeeded"
    app.verify_trace(hands.job_id)
    app.verify_receipts(app.job(hands.job_id).task_id)
    app.close()


def test_a_full_transaction_is_on_the_disk_when_it_returns(app):
    with app.store.write("full") as tx:
        tx.budgets.save("b", Account(spent=Amounts(1)))

    with app.store.database.begin("read") as (connection, _):
        asked = connection.exec_driver_sql("SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()")
        assert asked.scalar() is True
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"


def test_a_failed_statement_that_somebody_swallowed_is_never_taken_for_a_commit(app):
    def swallow() -> None:
        with app.store.database.begin("full") as (connection, _):
            connection.exec_driver_sql("CREATE TABLE kept (a int)")
            with pytest.raises(sa.exc.ProgrammingError):
                connection.exec_driver_sql("SELECT nonsense")

    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        swallow()


def test_a_server_that_is_not_there_is_named_without_its_password(tmp_path):
    url = "postgresql://me:very-secret@127.0.0.1:9/nothing"
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9/nothing") as refused:
        SqlStore(url)

    assert "very-secret" not in str(refused.value)
    shown = {name: value for name, value, _ in setting_rows(Settings(database_url=url))}
    assert shown["database_url"] == "postgresql://me:***@127.0.0.1:9/nothing"
    assert "very-secret" not in repr(Settings(database_url=url))


@pytest.mark.parametrize("url", ["mysql://x/y", "custody.db", "http://x"])
def test_another_kind_of_database_is_refused(url):
    with pytest.raises(InvalidRequest, match="postgresql://USER"):
        load_settings({"database_url": url})
    with pytest.raises(InvalidRequest, match="postgresql://USER"):
        SqlStore(url)
