"""Workbooks: one JSON line a row, `{"sheet", "row", "values"}`, with the values that were last calculated."""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sandbox.guest.conversion.form import Form
from sandbox.guest.conversion.xml_parts import BadDocument, Package

_MOST_COLUMNS = 16_384
_DATE_FORMATS = frozenset({*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)})
_DATE_SIGNS = re.compile(r"[ymdhs]", re.IGNORECASE)
_QUOTED = re.compile(r'"[^"]*"|\[[^\]]*\]|\\.')
_PLACE = re.compile(r"([A-Z]{1,3})([0-9]{1,7})\Z")


def convert(path: Path, form: Form) -> None:
    book = _Book(Package(path))
    for name, part in book.sheets:
        form.sheets.append(name)
        for number, values in book.rows(part):
            form.row({"sheet": name, "row": number, "values": values})


class _Book:
    def __init__(self, package: Package) -> None:
        self._package = package
        self._epoch = datetime(1899, 12, 30)  # noqa: DTZ001 - a sheet's dates have no zone
        self.sheets = list(self._find_sheets())
        self._strings = list(self._shared_strings())
        self._dates = self._date_styles()

    def _find_sheets(self) -> Iterator[tuple[str, str]]:
        targets: dict[str, str] = {}
        for what, tag, given in self._package.events("xl/_rels/workbook.xml.rels"):
            if what == "start" and tag == "Relationship":
                targets[given.get("Id", "")] = given.get("Target", "")
        for what, tag, given in self._package.events("xl/workbook.xml"):
            if what == "start" and tag == "workbookPr" and given.get("date1904") in ("1", "true"):
                self._epoch = datetime(1904, 1, 1)  # noqa: DTZ001 - as above
            if what == "start" and tag == "sheet" and (target := targets.get(given.get("id", ""), "")):
                part = target.lstrip("/") if target.startswith("/") else f"xl/{target}"
                if self._package.has(part):
                    yield given.get("name", ""), part

    def _shared_strings(self) -> Iterator[str]:
        if not self._package.has("xl/sharedStrings.xml"):
            return
        said: list[str] = []
        in_text = in_phonetic = False
        for what, tag, _ in self._package.events("xl/sharedStrings.xml"):
            if what == "text":
                said.extend([tag] if in_text and not in_phonetic else [])
            elif tag == "t":
                in_text = what == "start"
            elif tag == "rPh":
                in_phonetic = what == "start"
            elif tag == "si" and what == "end":
                yield "".join(said)
                said.clear()

    def _date_styles(self) -> list[bool]:
        """Whether each style of a cell shows its number as a date."""
        styles: list[bool] = []
        own: dict[int, str] = {}
        in_cells = False
        if not self._package.has("xl/styles.xml"):
            return styles
        for what, tag, given in self._package.events("xl/styles.xml"):
            if tag == "cellXfs":
                in_cells = what == "start"
            elif what == "start" and tag == "numFmt":
                own[_whole(given.get("numFmtId"))] = given.get("formatCode", "")
            elif what == "start" and tag == "xf" and in_cells:
                number = _whole(given.get("numFmtId"))
                plain = _QUOTED.sub("", own.get(number, ""))
                styles.append(number in _DATE_FORMATS or bool(_DATE_SIGNS.search(plain)))
        return styles

    def rows(self, part: str) -> Iterator[tuple[int, list[Any]]]:
        """The rows of one sheet that hold something, by their number."""
        number, values = 0, list[Any]()
        cell: dict[str, str] = {}
        said: list[str] = []
        reads = False
        for what, tag, given in self._package.events(part):
            if what == "text":
                said.extend([tag] if reads else [])
            elif tag == "row" and what == "start":
                number, values = _whole(given.get("r")) or number + 1, []
            elif tag == "c" and what == "start":
                cell = given
                said.clear()
            elif tag in ("v", "t"):
                reads = what == "start"
            elif tag == "c":
                _put(values, cell.get("r", ""), self._value(cell, "".join(said)))
            elif tag == "row" and any(value is not None for value in values):
                yield number, values

    def _value(self, cell: dict[str, str], text: str) -> Any:
        kind = cell.get("t", "n")
        if not text:
            return None
        if kind == "s":
            place = _whole(text)
            return self._strings[place] if place < len(self._strings) else None
        if kind == "b":
            return text == "1"
        if kind != "n":
            return text
        return self._number(text, style=_whole(cell.get("s")))

    def _number(self, text: str, *, style: int) -> Any:
        try:
            value = float(text)
            if style < len(self._dates) and self._dates[style]:
                moment = self._epoch + timedelta(milliseconds=round(value * 86_400_000))
                return moment.date().isoformat() if value == int(value) else moment.isoformat()
            return int(value) if value == int(value) and abs(value) < 2**53 else value
        except (ValueError, OverflowError):
            return text


def _put(values: list[Any], place: str, value: Any) -> None:
    found = _PLACE.match(place)
    column = len(values)
    if found:
        column = 0
        for letter in found[1]:
            column = column * 26 + ord(letter) - 64
        column -= 1
    if column >= _MOST_COLUMNS:
        raise BadDocument(f"it has a cell at {place}, beyond {_MOST_COLUMNS:,} columns")
    values.extend([None] * (column + 1 - len(values)))
    values[column] = value


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else 0
