"""One thing that `custody doctor` looked at, and how all of them are printed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.table import Table
from rich.text import Text

from controlplane.cli.safe import printable

Level = Literal["ok", "note", "fail"]
_MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "fail": ("FAIL", "bold red")}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing looked at."""

    name: str
    level: Level
    words: str
    remedy: str = ""


def is_fine(findings: Sequence[Finding]) -> bool:
    return all(finding.level != "fail" for finding in findings)


def findings_table(findings: Sequence[Finding]) -> Table:
    grid = Table.grid(padding=(0, 2))
    for finding in findings:
        remedy = f"\n→ {finding.remedy}" if finding.remedy else ""
        word, style = _MARKS[finding.level]
        name = Text(finding.name, style="bold")
        grid.add_row(Text(word, style=style), name, Text(printable(finding.words + remedy)))
    return grid
