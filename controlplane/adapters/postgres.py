"""PostgreSQL: how a transaction begins and becomes durable, what its errors mean, and a watch that is told by NOTIFY.

A transaction commits without waiting for the disk and so gives its locks back at once; the call returns when the disk has
it, by a second commit that many share. Thus the account of a tenant, which each of its jobs changes, is no queue for the disk.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg import errors
from psycopg.pq import ExecStatus, TransactionStatus

from controlplane.adapters import later
from controlplane.adapters.databases import Begun, Purpose, conflict, translated
from controlplane.adapters.messenger import Messenger
from controlplane.adapters.orders import ORDERS, to_orders
from controlplane.adapters.sql_accounts import steers_after
from controlplane.errors import ControlPlaneError, InvalidRequest, Unavailable
from controlplane.notice import Notice
from controlplane.ports import Orders

NOW_MS = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
#: Whoever waits longer for a row than this is told to try again, and whoever stands still in a transaction loses it.
BUSY_MS = 10_000
#: A watch looks again after this time, though nobody told it: whoever gave an order may have died before telling.
LOOK_SECONDS = 1.0

_ORDERS = sa.text(ORDERS.format(now_ms=NOW_MS, job_id=":job_id"))
_BEGIN: dict[Purpose, bytes] = {
    "full": f"BEGIN; SET LOCAL synchronous_commit = off; SELECT {NOW_MS}".encode(),
    "normal": f"BEGIN; SET LOCAL synchronous_commit = off; SELECT {NOW_MS}".encode(),
    "read": f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT {NOW_MS}".encode(),
}
_COMMIT: dict[Purpose, bytes] = {
    "full": b"COMMIT; SELECT pg_logical_emit_message(true, 'custody', '')",
    "normal": b"COMMIT",
    "read": b"COMMIT",
}
#: What serialises schema changes; the number means nothing.
_SCHEMA_LOCK = 0x63757374
_CONFLICTS = (errors.UniqueViolation, errors.SerializationFailure, errors.DeadlockDetected)


def parsed(url: str) -> sa.URL:
    """The URL of a database; InvalidRequest when it is none of PostgreSQL."""
    try:
        found = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        found = None
    if found is None or found.drivername.split("+")[0] not in ("postgresql", "postgres"):
        raise InvalidRequest("the database URL must look like postgresql://USER:PASSWORD@HOST:PORT/NAME")
    return found.set(drivername="postgresql+psycopg")


def engine(url: sa.URL, *, options: str = "", isolation_level: Any = "AUTOCOMMIT") -> sa.Engine:
    """Engine whose connections notice a lost server, and whose transactions neither wait nor stand for ever."""
    limits = f"-c lock_timeout={BUSY_MS} -c idle_in_transaction_session_timeout={BUSY_MS} {options}"
    return sa.create_engine(
        url,
        isolation_level=isolation_level,
        use_native_hstore=False,
        pool_size=8,
        max_overflow=24,
        pool_timeout=BUSY_MS / 1000,
        connect_args={
            "connect_timeout": 5,
            "application_name": "custody",
            "options": limits,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 30_000,
        },
    )


class PostgresWatch:
    """Holds no connection while it waits: there may be as many as jobs are at work."""

    def __init__(self, database: "Postgres", subscribe: Callable[[str], threading.Event]) -> None:
        self._database = database
        self._subscribe = subscribe
        self._news: dict[str, threading.Event] = {}

    def read(self, job_id: str, *, steer_seen: int) -> tuple[Orders | None, int]:
        if job_id not in self._news:
            self._news = {job_id: self._subscribe(job_id)}
        # Before the look, so that what happens after it is news.
        self._news[job_id].clear()
        with translated(self._database), self._database.begin("read") as (connection, now_ms):
            found = connection.execute(_ORDERS, {"job_id": job_id}).first()
            if found is None:
                return None, now_ms
            return to_orders(
                found,
                steer_seen=steer_seen,
                steers=lambda: steers_after(connection, job_id, seen=steer_seen),
            )

    def wait(self, *, timeout: float) -> bool:
        news = next(iter(self._news.values()))
        # After a while without news it looks nevertheless.
        return news.wait(min(timeout, LOOK_SECONDS)) or timeout > LOOK_SECONDS


class Postgres:
    """One database of a PostgreSQL server."""

    now_ms = NOW_MS
    errors: type[Exception] = psycopg.Error

    def __init__(self, url: str) -> None:
        place = parsed(url)
        self.name = place.set(drivername="postgresql", query={}).render_as_string(hide_password=True)
        self._engine = engine(place)
        # Whatever SQLAlchemy sends itself comes after what was written before it.
        sa.event.listen(self._engine, "before_cursor_execute", lambda connection, *_: later.send(connection))
        self.writer = engine(place, options="-c synchronous_commit=off", isolation_level="READ COMMITTED")
        self.reader = self.writer
        plain = place.set(drivername="postgresql").render_as_string(hide_password=False)
        self.notice = Notice(on_wait=self._listen)
        self._messenger = Messenger(plain, on_news=self.notice.announce)

    def _listen(self) -> None:
        self._messenger.start()

    @contextmanager
    def begin(self, purpose: Purpose) -> Iterator[Begun]:
        connection, now_ms = self._begun(_BEGIN[purpose])
        if purpose != "read":
            later.collect(connection)
        try:
            yield connection, now_ms
            later.send(connection)
            _run(connection, _COMMIT[purpose])
        except BaseException:
            self._undo(connection)
            raise
        finally:
            if not connection.invalidated:
                later.forget(connection)
            connection.close()

    def _begun(self, words: bytes) -> tuple[sa.Connection, int]:
        """A connection in a transaction. One that died in the pool is found here, where nothing was done with it yet."""
        connection = self._engine.connect()
        try:
            return connection, int(_run(connection, words).get_value(0, 0) or 0)
        except psycopg.Error:
            connection.invalidate()
            connection.close()
            # The others of this time are as dead as this one.
            self._engine.dispose()
        connection = self._engine.connect()
        try:
            return connection, int(_run(connection, words).get_value(0, 0) or 0)
        except BaseException:
            connection.close()
            raise

    def _undo(self, connection: sa.Connection) -> None:
        driver: Any = connection.connection.driver_connection
        try:
            driver.rollback()
        except psycopg.Error:
            with suppress(Exception):
                connection.invalidate()

    @contextmanager
    def alone(self) -> Iterator[sa.Connection]:
        with self.begin("full") as (connection, _):
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_SCHEMA_LOCK)))
            yield connection

    @contextmanager
    def watch(self) -> Iterator[PostgresWatch]:
        self._listen()
        with ExitStack() as stack, translated(self):
            yield PostgresWatch(self, lambda job_id: stack.enter_context(self.notice.about(job_id)))

    def announce(self, job_id: str = "") -> None:
        self.notice.announce(job_id)
        if self._messenger.tell(job_id):
            return
        # Nobody here waits for news, so that no connection is kept for it. Telling is a courtesy: the others look anyway.
        with suppress(sa.exc.SQLAlchemyError, psycopg.Error), self.begin("normal") as (connection, _):
            connection.execute(sa.select(sa.func.pg_notify(Messenger.CHANNEL, job_id)))

    def meaning(self, error: BaseException) -> ControlPlaneError | None:
        if isinstance(error, _CONFLICTS):
            return conflict(error)
        if isinstance(error, errors.IntegrityError):
            return None
        if isinstance(error, errors.DataError):
            return InvalidRequest(f"a value does not fit the database: {error}")
        return Unavailable(
            f"the database {self.name} did not answer: {str(error).strip()}. "
            "See that the server runs and that CUSTODY_DATABASE_URL names it"
        )

    def version(self) -> tuple[str, str]:
        with translated(self), self.begin("read") as (connection, _):
            number = connection.exec_driver_sql("SHOW server_version").scalar_one()
        return f"PostgreSQL {number.split()[0]} at {self.name}", ""

    def close(self) -> None:
        self._messenger.close()
        for each in (self._engine, self.writer):
            each.dispose()


def _run(connection: sa.Connection, words: bytes) -> Any:
    """Send words to the server as they are, several statements in one journey; return the answer to the last."""
    driver: Any = connection.connection.driver_connection
    pgconn = driver.pgconn
    if words.startswith(b"COMMIT") and pgconn.transaction_status == TransactionStatus.INERROR:
        # The server would answer ROLLBACK, and not call it an error.
        raise errors.InFailedSqlTransaction("a statement of this transaction had failed")
    result = pgconn.exec_(words)
    if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        raise errors.error_from_result(result)
    return result
