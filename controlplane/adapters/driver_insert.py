"""Many rows into one table, past the parts of SQLAlchemy that look at every value again."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

Row = tuple[Any, ...]


class DriverInsert:
    """An INSERT in the words of the connection's own driver. Rows are tuples in the order of `columns`, of types it takes as they are."""

    def __init__(self, table: sa.Table, columns: Sequence[str], *, keep_known: bool = False) -> None:
        """`keep_known`: a row whose key is there already is left as it is."""
        self._table = table
        self._columns = tuple(columns)
        self._ending = " ON CONFLICT DO NOTHING" if keep_known else ""
        self._compiled: dict[str, tuple[str, bool]] = {}

    def __call__(self, connection: sa.Connection, rows: Sequence[Row]) -> None:
        statement, is_positional = self._for(connection.dialect)
        if is_positional:
            connection.exec_driver_sql(statement, list(rows))
        else:
            connection.exec_driver_sql(
                statement, [dict(zip(self._columns, row, strict=True)) for row in rows]
            )

    def _for(self, dialect: sa.Dialect) -> tuple[str, bool]:
        known = self._compiled.get(dialect.name)
        if known is None:
            compiled = sa.insert(self._table).compile(dialect=dialect, column_keys=list(self._columns))
            if compiled.positiontup is not None:  # type: ignore[attr-defined]
                assert tuple(compiled.positiontup) == self._columns  # type: ignore[attr-defined]
            known = (str(compiled) + self._ending, compiled.positiontup is not None)  # type: ignore[attr-defined]
            self._compiled[dialect.name] = known
        return known
