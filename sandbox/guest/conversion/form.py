"""The text form that is being written: its lines counted, its pages marked, its size bounded. Knows no document."""

import json
from pathlib import Path
from typing import Any

#: Where a text form and what is known of it are left for the host.
TEXT, FACTS = "text", "facts.json"


class Full(Exception):
    """The text form has reached its size; what is written stays."""


class Form:
    """A text form. Lines end in a newline and hold none."""

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self._file = (folder / TEXT).open("w", encoding="utf-8", errors="replace", newline="\n")
        self._folder = folder
        self._left = max_bytes
        self.lines = 0
        self.pages: list[int] = []
        self.sheets: list[str] = []
        self.rows: int | None = None
        self.notes: list[str] = []

    def line(self, text: str) -> None:
        self._left -= len(text) + 1
        if self._left < 0:
            raise Full
        self._file.write(text + "\n")
        self.lines += 1

    def block(self, text: str) -> None:
        """Several lines at once, without what is only space at their ends."""
        for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
            self.line(line.rstrip())

    def row(self, value: Any) -> None:
        """One JSON value on a line of its own."""
        self.line(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))
        self.rows = (self.rows or 0) + 1

    def page(self) -> None:
        """The next line begins a page."""
        self.pages.append(self.lines + 1)

    def note(self, text: str) -> None:
        if len(self.notes) < 5:
            self.notes.append(text)

    def close(self) -> None:
        self._file.close()
        facts = {
            "pages": self.pages,
            "sheets": self.sheets,
            "rows": self.rows,
            "note": "; ".join(self.notes)[:900],
        }
        (self._folder / FACTS).write_text(json.dumps(facts), encoding="utf-8")
