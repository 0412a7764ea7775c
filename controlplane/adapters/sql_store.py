"""The store on SQLite: short transactions on two engines of different durability, and readers that never wait."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from controlplane.adapters import sqlite
from controlplane.adapters.migrate import migrate
from controlplane.adapters.private_files import make_file
from controlplane.adapters.sql_accounts import SqlAnswers, SqlBudgets, SqlOutbox, SqlSteers
from controlplane.adapters.sql_history import SqlHistory, SqlTasks
from controlplane.adapters.sql_jobs import LEASE_FIELDS, SqlJobs, SqlLeases, to_lease
from controlplane.adapters.sql_keys import SqlKeys
from controlplane.adapters.sql_remote import SqlRemote
from controlplane.adapters.sql_traces import SqlTraces
from controlplane.errors import Unavailable
from controlplane.notice import Notice
from controlplane.ports import (
    Answers,
    Budgets,
    Durability,
    History,
    Jobs,
    Keys,
    Leases,
    Orders,
    Outbox,
    Steers,
    Tasks,
    Traces,
)
from controlplane.remote_ports import Remote
from rlm_worker.contracts.gateway import Steer

_POLL_SECONDS = 0.02
_ORDERS = f"""
SELECT job.desired, job.reason, {sqlite.NOW_MS},
  coalesce((SELECT max(command_id) FROM command WHERE command.job_id = job.job_id AND command.kind = 'steer'), 0),
  {", ".join(f"lease.{name}" for name in LEASE_FIELDS)}
FROM job LEFT JOIN lease ON lease.job_id = job.job_id WHERE job.job_id = ?"""


class SqlTransaction:
    """One transaction and the rows in it."""

    def __init__(self, connection: sa.Connection) -> None:
        self.now_ms: int = connection.exec_driver_sql(f"SELECT {sqlite.NOW_MS}").scalar_one()
        self.jobs: Jobs = SqlJobs(connection, now_ms=self.now_ms)
        self.tasks: Tasks = SqlTasks(connection)
        self.leases: Leases = SqlLeases(connection, now_ms=self.now_ms)
        self.history: History = SqlHistory(connection, now_ms=self.now_ms)
        self.traces: Traces = SqlTraces(connection)
        self.budgets: Budgets = SqlBudgets(connection, now_ms=self.now_ms)
        self.outbox: Outbox = SqlOutbox(connection, now_ms=self.now_ms)
        self.steers: Steers = SqlSteers(connection, now_ms=self.now_ms)
        self.answers: Answers = SqlAnswers(connection, now_ms=self.now_ms)
        self.remote: Remote = SqlRemote(connection, now_ms=self.now_ms)
        self.keys: Keys = SqlKeys(connection, now_ms=self.now_ms)


class SqlWatch:
    """A connection of its own, whose `data_version` changes when any other connection commits.

    It asks the driver itself, many times a second while a job runs: each statement is a transaction, and the version is
    read first, so that what is committed in between is found by the next look.
    """

    def __init__(self, connection: sa.Connection, notice: Notice) -> None:
        self._connection = connection
        self._driver: Any = connection.connection.driver_connection
        self._notice = notice
        self._version = -1
        self._seen = notice.count

    def read(self, job_id: str, *, steer_seen: int) -> tuple[Orders | None, int]:
        self._seen = self._notice.count
        self._version = self._data_version()
        found = self._driver.execute(_ORDERS, (job_id,)).fetchone()
        if found is None:
            return None, self._driver.execute(f"SELECT {sqlite.NOW_MS}").fetchone()[0]
        desired, reason, now_ms, last_steer, *lease = found
        steers: tuple[Steer, ...] = ()
        if last_steer > steer_seen:
            with self._connection.begin():
                steers = SqlSteers(self._connection, now_ms=now_ms).after(job_id, seen=steer_seen)
        held = None if lease[0] is None else to_lease(dict(zip(LEASE_FIELDS, lease, strict=True)))
        return Orders(desired=desired, reason=reason, lease=held, steers=steers), now_ms

    def wait(self, *, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            if self._notice.wait(self._seen, timeout=min(left, _POLL_SECONDS)):
                return True
            if self._data_version() != self._version:
                return True
        return False

    def _data_version(self) -> int:
        version: int = self._driver.execute("PRAGMA data_version").fetchone()[0]
        return version


class SqlStore:
    """One SQLite file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notice = Notice()
        # SQLite gives its side files the mode of the database; whatever hinders making it, SQLite says better.
        with suppress(OSError):
            make_file(path)
        self._full = sqlite.engine(path, synchronous="FULL")
        self._normal = sqlite.engine(path, synchronous="NORMAL")
        self._reader = sqlite.engine(path, synchronous="NORMAL", read_only=True)
        with _translated():
            migrate(reader=self._reader, writer=self._full)

    @contextmanager
    def write(self, durability: Durability = "full") -> Iterator[SqlTransaction]:
        engine = self._full if durability == "full" else self._normal
        with _translated(), engine.begin() as connection:
            yield SqlTransaction(connection)

    @contextmanager
    def read(self) -> Iterator[SqlTransaction]:
        with _translated(), self._reader.begin() as connection:
            yield SqlTransaction(connection)

    @contextmanager
    def watch(self) -> Iterator[SqlWatch]:
        with _translated(), self._reader.connect() as connection:
            yield SqlWatch(connection, self.notice)

    def announce(self) -> None:
        self.notice.announce()

    def close(self) -> None:
        for engine in (self._full, self._normal, self._reader):
            engine.dispose()


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sa.exc.TimeoutError as error:
        raise Unavailable("every connection to the database is in use: try again") from error
    except (sa.exc.OperationalError, sa.exc.DatabaseError) as error:
        if isinstance(error, sa.exc.IntegrityError):
            raise
        raise Unavailable(f"the database did not answer: {error.orig}") from error
    except sqlite.library().Error as error:
        raise Unavailable(f"the database did not answer: {error}") from error
