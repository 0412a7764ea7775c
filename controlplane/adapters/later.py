"""Changes that travel together: on a server each statement is a journey, and nobody reads what a change answers.

A connection that collects keeps its changes until something is read, or the transaction ends; then they go in one journey,
in their order. An error of a change is raised there, still before the commit.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

_NAME = "custody_later"


def collect(connection: sa.Connection) -> None:
    """From now on changes wait on this connection."""
    connection.info[_NAME] = []


def forget(connection: sa.Connection) -> None:
    """Changes that were not sent never happen, and the next ones do not wait."""
    connection.info.pop(_NAME, None)


def kept(connection: sa.Connection, statement: str, rows: Sequence[Any]) -> bool:
    """Keep changes for later; False when they must be made now."""
    waiting: list[tuple[str, Any]] | None = connection.info.get(_NAME)
    if waiting is None:
        return False
    waiting += [(statement, row) for row in rows]
    return True


def send(connection: sa.Connection) -> None:
    """Make every change that waits."""
    with sent(connection):
        pass


@contextmanager
def sent(connection: sa.Connection) -> Iterator[None]:
    """Send what waits together with what is sent inside. What that found is there when this is over."""
    waiting: list[tuple[str, Any]] | None = connection.info.get(_NAME)
    if not waiting:
        yield
        return
    statements, waiting[:] = list(waiting), []
    driver: Any = connection.connection.driver_connection
    with driver.pipeline():
        for statement, row in statements:
            driver.execute(statement, row)
        yield
