"""SQLite engines: which library, which pragmas, which durability. Knows no table."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import sqlalchemy as sa

#: First release without the WAL-reset corruption bug.
SOUND = (3, 51, 3)
BUSY_MS = 10_000

NOW_MS = "CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)"


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
    begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"
    sa.event.listen(made, "begin", lambda connection: connection.exec_driver_sql(begin))
    return made


def _pragmas(synchronous: str) -> Callable[[Any, Any], None]:
    def on_connect(connection: Any, _record: Any) -> None:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        connection.execute("PRAGMA foreign_keys=ON")
        # The standard 1,000 pages checkpoint in the middle of a batch; the file stays below a few MB with this.
        connection.execute("PRAGMA wal_autocheckpoint=2000")

    return on_connect
