"""How things are measured and said here: interleaved rounds, medians, tables, promises. Knows nothing of what is measured."""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

Case = Callable[[], float]


def timed(work: Callable[[], object]) -> float:
    """Seconds that a piece of work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def interleaved(cases: Mapping[str, Case], *, rounds: int) -> dict[str, list[float]]:
    """Run every case once per round, so that a busy moment of the machine strikes all of them alike."""
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            taken[name].append(case())
    return taken


median = statistics.median


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.2f}" if seconds < 0.1 else f"{seconds * 1000:,.0f}"


def times(ratio: float) -> str:
    return f"{ratio:.2f}x" if ratio < 10 else f"{ratio:,.0f}x"


@dataclass
class Report:
    """What one benchmark prints, and which of its promises were missed."""

    name: str
    missed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def begin(self, about: str) -> None:
        load = os.getloadavg()[0]
        print(f"\n== {self.name}: {about}\n   {os.cpu_count()} cores, load {load:.1f}", flush=True)

    def table(self, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        lines = [tuple(head), *(tuple(row) for row in rows)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        for line in lines:
            first, *rest = (
                cell.rjust(width) if column else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            print("   " + "  ".join([first, *rest]).rstrip(), flush=True)

    def skip(self, what: str, why: str) -> None:
        self.skipped.append(what)
        print(f"   SKIP {what}: {why}", flush=True)

    def at_most(self, what: str, got: float, limit: float, *, unit: str = "x") -> None:
        self._judge(got <= limit, f"{what}: {got:.2f}{unit} (at most {limit:g}{unit})")

    def at_least(self, what: str, got: float, limit: float, *, unit: str = "x") -> None:
        self._judge(got >= limit, f"{what}: {got:.2f}{unit} (at least {limit:g}{unit})")

    def _judge(self, is_kept: bool, said: str) -> None:
        (self.kept if is_kept else self.missed).append(said)
        print(f"   {'PASS' if is_kept else 'MISS'} {said}", flush=True)
