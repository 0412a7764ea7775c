"""Rows and records of a document: csv, tsv, JSON Lines and converted sheets, each row with its address. Opens no file."""

import csv
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sandbox.guest.documents import Document

_CSV, _TSV = "text/csv", "text/tab-separated-values"
_MAX_FIELD = 16 << 20


class NoTable(ValueError):
    """The document has no rows; the message says what it is."""


class Row(dict[str, Any]):
    """One row by column, or one record by key: a dict with `number`, `citation`, `document` and, of a workbook, `sheet`."""

    __slots__ = ("document", "number", "sheet")
    document: "Document"
    number: int
    sheet: str

    @property
    def citation(self) -> str:
        """Its address, as in `orders.csv#row=10`."""
        return f"{self.document.name}#row={self.number}"


def rows(document: "Document", *, header: bool = True) -> Iterator[Row]:
    """The rows of a table, by the names in its first row, which has the number 0."""
    kind = document.kind
    if kind in (_CSV, _TSV):
        return _separated(document, header=header)
    if document.sheets:
        return _sheets(document, header=header)
    if kind.endswith(("jsonl", "parquet")):
        return records(document)
    raise NoTable(f"{document.name} is {kind}, not a table: use .lines(), .records() or .search(regex)")


def records(document: "Document", *, strict: bool = True) -> Iterator[Row]:
    """One JSON value a line; what is no object stands under the key `value`. A record's number is that of its line."""
    for line in document.lines():
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError as error:
            if strict:
                raise ValueError(
                    f"{line.citation} is not JSON ({error}): .records(strict=False) leaves such lines out"
                ) from None
            continue
        yield _row(document, line.number, value if isinstance(value, dict) else {"value": value})


def _separated(document: "Document", *, header: bool) -> Iterator[Row]:
    csv.field_size_limit(_MAX_FIELD)
    delimiter = document.delimiter or ("\t" if document.kind == _TSV else ",")
    found = csv.reader((f"{line}\n" for line in document.lines()), delimiter=delimiter)
    names: list[str] | None = None
    number = 0
    for values in found:
        if not values:
            continue
        if names is None and header:
            names = _distinct(values)
        else:
            yield _row(document, number, _keyed(names, values))
        number += 1


def _sheets(document: "Document", *, header: bool) -> Iterator[Row]:
    names: list[str] | None = None
    current = None
    for record in records(document):
        if record["sheet"] != current:
            current, names = record["sheet"], None
            if header:
                names = _distinct(["" if value is None else str(value) for value in record["values"]])
                continue
        row = _row(document, record.number, _keyed(names, record["values"]))
        row.sheet = record["sheet"]
        yield row


def _row(document: "Document", number: int, values: dict[str, Any]) -> Row:
    row = Row(values)
    row.document, row.number, row.sheet = document, number, ""
    return row


def _keyed(names: list[str] | None, values: list[Any]) -> dict[str, Any]:
    known = names or []
    missing = [""] * (len(known) - len(values))
    keys = [*known, *(f"column {place + 1}" for place in range(len(known), len(values)))]
    return dict(zip(keys, [*values, *missing], strict=False))


def _distinct(names: list[str]) -> list[str]:
    """Names of columns, each once: an empty one by its place, a second one by its count."""
    taken: dict[str, int] = {}
    found = []
    for place, name in enumerate(names, 1):
        plain = name.strip().removeprefix("\ufeff") or f"column {place}"
        taken[plain] = taken.get(plain, 0) + 1
        found.append(plain if taken[plain] == 1 else f"{plain} {taken[plain]}")
    return found
