"""What one kind of database does differently from another, behind one seam. Everything else of a store is the same code on all."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Literal, Protocol

import sqlalchemy as sa

from controlplane.errors import ControlPlaneError, InvalidRequest, Unavailable, VersionConflict
from controlplane.notice import Notice
from controlplane.ports import Durability, Watch

#: A file for SQLite, or the URL of a PostgreSQL database.
Place = Path | str
#: What a transaction is for: to read a state that does not move meanwhile, or to write with a promise about the disk.
Purpose = Literal["read"] | Durability
#: A transaction under way, and the database's clock when it began.
Begun = tuple[sa.Connection, int]


class Database(Protocol):
    """One database."""

    #: Its name for people, without any password.
    name: str
    #: Its clock in milliseconds, as SQL.
    now_ms: str
    #: What its driver raises.
    errors: type[Exception]
    #: Tells the threads of this process what was committed, here or elsewhere.
    notice: Notice
    #: Engines for what keeps tables of its own beside the store, as a queue does; what they write may be lost with the machine.
    writer: sa.Engine
    reader: sa.Engine

    def begin(self, purpose: Purpose) -> AbstractContextManager[Begun]:
        """A transaction. Leaving it normally commits; an exception undoes it."""
        ...

    def alone(self) -> AbstractContextManager[sa.Connection]:
        """A durable transaction beside which no other process changes the schema."""
        ...

    def watch(self) -> AbstractContextManager[Watch]: ...

    def announce(self, job_id: str = "") -> None:
        """Wake whoever waits for news of a job (of anything, when none is named), in this process and in others."""
        ...

    def meaning(self, error: BaseException) -> ControlPlaneError | None:
        """What an error of the driver means for the caller; None: that somebody wrote a wrong program."""
        ...

    def version(self) -> tuple[str, str]:
        """Name and version for people, and what is wrong with it ("" when nothing is)."""
        ...

    def close(self) -> None: ...


def open_database(place: Place) -> Database:
    """The database at a place. A server is not asked before it is needed."""
    if isinstance(place, Path):
        from controlplane.adapters.sqlite import Sqlite  # noqa: PLC0415 - only one of the two is needed

        return Sqlite(place)
    from controlplane.adapters.postgres import Postgres  # noqa: PLC0415

    return Postgres(place)


@contextmanager
def translated(database: Database) -> Iterator[None]:
    """What drivers raise, in the words of the control plane."""
    try:
        yield
    except sa.exc.TimeoutError as error:
        raise Unavailable("every connection to the database is in use: try again") from error
    except (sa.exc.DBAPIError, database.errors) as error:
        original = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        meant = None if original is None else database.meaning(original)
        if meant is None:
            raise
        raise meant from error
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"a text cannot be stored, it holds half a character: {error}") from error


def skew_ms(database: Database) -> int:
    """How far the database's clock is ahead of this host's."""
    with translated(database):
        before = time.time()
        with database.begin("read") as (_, now_ms):
            after = time.time()
    return now_ms - int((before + after) / 2 * 1000)


def conflict(error: BaseException) -> VersionConflict:
    """Two wrote the same at once."""
    return VersionConflict(
        f"somebody else wrote the same at this moment, read it again, then decide: {error}"
    )
