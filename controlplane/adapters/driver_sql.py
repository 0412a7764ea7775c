"""The statements that run with every job and every group of recorded events, handed to the driver itself: SQLAlchemy looks at each value again."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.compiler import SQLCompiler

from controlplane.adapters import later

Row = tuple[Any, ...]
Statement = sa.Select[Any] | sa.Insert | sa.Update | sa.Delete | sa.TextClause


class DriverSql:
    """A statement in the words of the connection's driver, made once. Values go as they are and come back as the driver gives them."""

    def __init__(
        self, statement: Statement, columns: Sequence[str] | None = None, *, ending: str = ""
    ) -> None:
        """`columns`: those that an INSERT fills, in the order of its rows."""
        self._statement = statement
        self._columns = None if columns is None else list(columns)
        self._ending = ending
        self._made: dict[str, tuple[str, list[str] | None]] = {}
        self._constants: dict[str, Any] = {}

    def first(self, connection: sa.Connection, values: Mapping[str, Any]) -> Row | None:
        """The first row that a SELECT finds."""
        row: Row | None = self._fetched(connection, values, lambda cursor: cursor.fetchone())
        return row

    def all(self, connection: sa.Connection, values: Mapping[str, Any]) -> list[Row]:
        """Every row that a SELECT finds."""
        rows: list[Row] = self._fetched(connection, values, lambda cursor: cursor.fetchall())
        return rows

    def count(self, connection: sa.Connection, values: Mapping[str, Any]) -> int:
        """Change what these values say; return how many rows that were."""
        changed: int = self._fetched(connection, values, lambda cursor: cursor.rowcount)
        return changed

    def one(self, connection: sa.Connection, values: Mapping[str, Any]) -> None:
        """Change what these values say."""
        statement, order = self._for(connection.dialect)
        _do(connection, statement, [_in_order({**self._constants, **values}, order)])

    def many(self, connection: sa.Connection, rows: list[Row]) -> None:
        """Insert rows."""
        statement, order = self._for(connection.dialect)
        assert self._columns is not None
        given: list[Any] = rows
        if order is None:
            given = [dict(zip(self._columns, row, strict=True)) for row in rows]
        else:
            assert order == self._columns, "the values of a row stand in the order of its table"
        _do(connection, statement, given)

    def _fetched(
        self, connection: sa.Connection, values: Mapping[str, Any], fetch: Callable[[Any], Any]
    ) -> Any:
        statement, order = self._for(connection.dialect)
        given = _in_order({**self._constants, **values}, order)
        with _cursor(connection, statement) as cursor:
            with later.sent(connection):
                cursor.execute(statement, given)
            return fetch(cursor)

    def _for(self, dialect: sa.Dialect) -> tuple[str, list[str] | None]:
        """The statement, and the order of its values; None where the driver takes them by name."""
        if dialect.name not in self._made:
            compiled = self._statement.compile(dialect=dialect, column_keys=self._columns)
            assert isinstance(compiled, SQLCompiler)
            # Values that the statement holds itself.
            binds = compiled.binds.items()
            self._constants |= {name: bind.value for name, bind in binds if bind.value is not None}
            order = None if compiled.positiontup is None else list(compiled.positiontup)
            self._made[dialect.name] = (str(compiled) + self._ending, order)
        return self._made[dialect.name]


def _in_order(values: Mapping[str, Any], order: list[str] | None) -> Any:
    return dict(values) if order is None else tuple(values[name] for name in order)


def _do(connection: sa.Connection, statement: str, rows: list[Any]) -> None:
    if later.kept(connection, statement, rows):
        return
    with _cursor(connection, statement) as cursor:
        if len(rows) == 1:
            cursor.execute(statement, rows[0])
        else:
            cursor.executemany(statement, rows)


@contextmanager
def _cursor(connection: sa.Connection, statement: str) -> Iterator[Any]:
    """Whatever the driver raises is raised as SQLAlchemy would."""
    errors: type[Exception] = connection.dialect.loaded_dbapi.Error
    cursor = connection.connection.cursor()
    try:
        yield cursor
    except errors as error:
        raise sa.exc.DBAPIError.instance(
            statement, None, error, errors, dialect=connection.dialect
        ) from error
    finally:
        cursor.close()
