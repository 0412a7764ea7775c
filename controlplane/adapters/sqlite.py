"""SQLite: which library, which pragmas, which durability, and a watch that never waits for a writer. Knows no table but those it watches."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import sqlalchemy as sa

from controlplane.adapters.databases import Begun, Purpose, conflict, translated
from controlplane.adapters.orders import ORDERS, to_orders
from controlplane.adapters.private_files import make_file
from controlplane.adapters.sql_accounts import steers_after
from controlplane.errors import ControlPlaneError, Unavailable
from controlplane.notice import Notice
from controlplane.ports import Orders
from rlm_worker.contracts.gateway import Steer

#: First release without the WAL-reset corruption bug.
SOUND = (3, 51, 3)
BUSY_MS = 10_000

NOW_MS = "CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)"
_POLL_SECONDS = 0.02
_BEGIN: dict[Purpose, str] = {"full": "BEGIN IMMEDIATE", "normal": "BEGIN IMMEDIATE", "read": "BEGIN"}
_ORDERS = ORDERS.format(now_ms=NOW_MS, job_id="?")


def library() -> ModuleType:
    """The newest SQLite at hand: the one that pysqlite3 carries where it is sound, else the standard library's."""
    try:
        import pysqlite3.dbapi2 as carried  # noqa: PLC0415 - not there on every platform
    except ImportError:
        return sqlite3
    return carried if carried.sqlite_version_info >= SOUND else sqlite3


def version() -> tuple[str, bool]:
    """SQLite in use, and whether several processes may write with it without risk."""
    used = library()
    return str(used.sqlite_version), used.sqlite_version_info >= SOUND


def engine(path: Path, *, synchronous: Literal["FULL", "NORMAL"], read_only: bool = False) -> sa.Engine:
    """Engine on one database file; transactions of a writing engine take the write lock when they begin."""
    # A library that is not the standard one keeps its own errors, which SQLAlchemy finds through `module`.
    made = sa.create_engine(
        f"sqlite:///{path}",
        module=library(),
        connect_args={"timeout": BUSY_MS / 1000, "check_same_thread": False, "isolation_level": None},
        pool_size=8,
        # Each job at work in this process has a connection of its own on which it hears orders.
        max_overflow=248,
    )
    sa.event.listen(made, "connect", _pragmas(synchronous))
    sa.event.listen(made, "begin", _begin(_BEGIN["read" if read_only else "full"]))
    return made


def _begin(words: str) -> Callable[[sa.Connection], None]:
    def on_begin(connection: sa.Connection) -> None:
        driver: Any = connection.connection.driver_connection
        if not driver.in_transaction:
            driver.execute(words)

    return on_begin


def _pragmas(synchronous: str) -> Callable[[Any, Any], None]:
    def on_connect(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        connection.execute("PRAGMA foreign_keys=ON")
        # The standard 1,000 pages checkpoint in the middle of a batch; the file stays below a few MB with this.
        connection.execute("PRAGMA wal_autocheckpoint=2000")

    return on_connect


class SqliteWatch:
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
            return None, self._driver.execute(f"SELECT {NOW_MS}").fetchone()[0]
        return to_orders(found, steer_seen=steer_seen, steers=lambda: self._steers(job_id, steer_seen))

    def _steers(self, job_id: str, seen: int) -> tuple[Steer, ...]:
        with self._connection.begin():
            return steers_after(self._connection, job_id, seen=seen)

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


class Sqlite:
    """One SQLite file: two engines of different durability, and readers that never wait."""

    now_ms = NOW_MS

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.errors: type[Exception] = library().Error
        self.notice = Notice()
        # SQLite gives its side files the mode of the database; whatever hinders making it, SQLite says better.
        with suppress(OSError):
            make_file(path)
        self._full = engine(path, synchronous="FULL")
        self.writer = engine(path, synchronous="NORMAL")
        self.reader = engine(path, synchronous="NORMAL", read_only=True)
        self._engines = {"full": self._full, "normal": self.writer, "read": self.reader}

    @contextmanager
    def begin(self, purpose: Purpose) -> Iterator[Begun]:
        with self._engines[purpose].connect() as connection:
            driver: Any = connection.connection.driver_connection
            driver.execute(_BEGIN[purpose])
            # From here on SQLAlchemy finds a transaction under way; what raises is undone when the connection goes back.
            yield connection, driver.execute(f"SELECT {NOW_MS}").fetchone()[0]
            driver.execute("COMMIT")

    @contextmanager
    def alone(self) -> Iterator[sa.Connection]:
        with self._full.begin() as connection:
            yield connection

    @contextmanager
    def watch(self) -> Iterator[SqliteWatch]:
        with translated(self), self.reader.connect() as connection:
            yield SqliteWatch(connection, self.notice)

    def announce(self, job_id: str = "") -> None:
        self.notice.announce(job_id)

    def meaning(self, error: BaseException) -> ControlPlaneError | None:
        if isinstance(error, library().IntegrityError):
            return conflict(error) if "UNIQUE" in str(error) else None
        return Unavailable(f"the database did not answer: {error}")

    def version(self) -> tuple[str, str]:
        number, is_sound = version()
        return f"SQLite {number}", "" if is_sound else "has a known defect in its write-ahead log"

    def close(self) -> None:
        for each in (self._full, self.writer, self.reader):
            each.dispose()
