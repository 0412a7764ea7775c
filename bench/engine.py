"""Whole jobs of ours against other RLMs, all asked by one loopback model: start, cells, subcalls, children, large inputs."""

import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.evidence import write_log
from bench.measure import Report, median, milliseconds, times
from bench.peers import CannotBeHad, Peer, dspy_with_deno, peer, predict_rlm_with_deno
from bench.processes import Outcome, Said, ourselves, run_jobs
from bench.works import SUBCALL_SECONDS, Script, Work, can_recurse, taken
from tests.scripted_model import ScriptedModel

_MB = 1_000_000
_SEARCHES: dict[str, Callable[[], Peer]] = {
    "rlms": lambda: peer("rlms"),
    "dspy-deno": dspy_with_deno,
    "predict-rlm": predict_rlm_with_deno,
}
#: These send their inputs into the sandbox again before every cell.
_REINJECT = frozenset({"dspy-deno", "predict-rlm"})
_SECONDS = 600
_LARGE_SECONDS, _LARGE_GB = 60, 8.0
_LINES = {
    "start": "first job's first cell",
    "next": "next job's first cell",
    "cells": "a trivial cell",
    "sequential": "subcalls one by one, each",
    "batch": "subcalls in one batch, whole",
    "children": "a child RLM",
    "input": "10 MB input: a cell",
    "input whole": "10 MB input: the job",
}

Seconds = dict[str, list[float]]


def run(report: Report, *, quick: bool = False, rounds: int = 3) -> None:
    counts = {"cells": 4, "sequential": 5, "batch": 20, "children": 2, "input": 3}
    if not quick:
        counts = {"cells": 20, "sequential": 50, "batch": 100, "children": 3, "input": 10}
    report.begin(f"whole jobs against one model: turns at once, subcalls after {SUBCALL_SECONDS * 1000:g} ms")
    people = {"ours": ourselves(), **_found(report, () if quick else tuple(_SEARCHES))}
    script = Script()
    with (
        tempfile.TemporaryDirectory(prefix="custody-bench-") as folder,
        ScriptedModel(script, keep_requests=False) as model,
    ):
        small = write_log(Path(folder) / "input.log", size_bytes=(1 if quick else 10) * _MB)
        contest = _Contest(report, people, model, script)
        for number in range(1 if quick else rounds):
            for who in list(contest.people):
                contest.measure(who, _works(who, counts, context=str(small), number=number))
        contest.tell(counts)
        small.unlink()
        large = write_log(Path(folder) / "input.log", size_bytes=(20 if quick else 1_000) * _MB)
        contest.tell_large(large)


def _found(report: Report, names: Sequence[str]) -> dict[str, Peer]:
    found: dict[str, Peer] = {}
    for name in names:
        try:
            found[name] = _SEARCHES[name]()
        except CannotBeHad as why:
            report.skip(name, str(why))
    return found


def _works(who: str, counts: dict[str, int], *, context: str, number: int) -> list[Work]:
    """The same jobs for everybody: the first in a fresh process is its start, the second shows one that is warm."""
    number *= 2
    return [
        Work(who=who, kind="cells", count=counts["cells"], number=number),
        Work(who=who, kind="cells", count=counts["cells"], number=number + 1),
        *(
            Work(who=who, kind=kind, count=counts[kind], number=number)
            for kind in ("sequential", "batch", "children")
            if kind != "children" or can_recurse(who)
        ),
        Work(who=who, kind="input", count=counts["input"], number=number, context=context),
    ]


class _Contest:
    """Everybody's seconds, line by line."""

    def __init__(self, report: Report, people: dict[str, Peer], model: ScriptedModel, script: Script) -> None:
        self._report = report
        self.people = people
        self._model = model
        self._script = script
        self._skipped: set[tuple[str, str]] = set()
        self._seconds: dict[str, Seconds] = {who: defaultdict(list) for who in people}

    def measure(self, who: str, works: list[Work]) -> None:
        """Enter what was done; a job that does not end is skipped, now and later, and the next one is begun anew."""
        left = [work for work in works if (who, work.kind) not in self._skipped]
        while left:
            outcome = self._run(who, left, seconds=_SECONDS)
            done = [line for line in outcome.said if "ended" in line]
            for work, line in zip(left, done, strict=False):
                opened = outcome.said[0].get("open", 0.0) if work is works[0] else None
                self._enter(work, line, opened=opened)
            if not outcome.why:
                return
            self._skip(left[len(done)], outcome.why)
            left = left[len(done) + 1 :]

    def _run(self, who: str, works: list[Work], *, seconds: float, gigabytes: float | None = None) -> Outcome:
        url = self._model.base_url
        return run_jobs(who, self.people[who], works, url=url, seconds=seconds, gigabytes=gigabytes)

    def _skip(self, work: Work, why: str) -> None:
        if work.who == "ours":
            raise RuntimeError(f"our own {work.kind} did not end: {why}")
        self._skipped.add((work.who, work.kind))
        self._report.skip(f"{work.who}, {work.kind}", why)

    def _enter(self, work: Work, line: Said, *, opened: float | None) -> None:
        """`opened`: seconds for our home, where the job was its process's first."""
        if why := _did_less(self._script, work):
            self._skip(work, why)
            return
        job, seconds = taken(self._script.roots[work.root], line), self._seconds[work.who]
        match work.kind:
            case "cells" if opened is not None:
                seconds["start"].append(opened + job.start)
            case "cells":
                seconds["next"].append(job.start)
                seconds["cells"].append(job.iteration)
            case "input":
                seconds["input"].append(job.iteration)
                seconds["input whole"].append(job.whole)
            case "batch":
                seconds["batch"].append(job.block)
            case _:
                seconds[work.kind].append(job.block / work.count)

    def tell(self, counts: dict[str, int]) -> None:
        middle = {
            who: {line: median(taken) for line, taken in seconds.items()}
            for who, seconds in self._seconds.items()
        }
        others = [who for who in middle if who != "ours"]
        rows = []
        for line, about in _LINES.items():
            shown = f"{about} ({counts[line]})" if line in counts else about
            said = [
                f"{milliseconds(middle[who][line])} ({times(middle[who][line] / middle['ours'][line])})"
                if line in middle[who]
                else "-"
                for who in others
            ]
            rows.append((shown, milliseconds(middle["ours"][line]), *said))
        self._report.table(("ms", "ours", *others), rows)
        for who in others:
            if not can_recurse(who):
                self._report.skip(f"{who}, child RLMs", "it has none")
            for line in middle[who]:
                limit = 5 if line.startswith("input") and who in _REINJECT else 1
                ratio = middle[who][line] / middle["ours"][line]
                self._report.at_least(f"{_LINES[line]}: {who} / ours", ratio, limit)

    def tell_large(self, large: Path) -> None:
        """Ours mounts it; whoever needs it in memory is given so much time and memory and no more."""
        size = f"{large.stat().st_size // _MB:,} MB input"
        rows = []
        ours = 0.0
        for who in self.people:
            work = Work(who=who, kind="input", count=5, number=1, context=str(large))
            outcome = self._run(who, [work], seconds=_LARGE_SECONDS, gigabytes=_LARGE_GB)
            if why := outcome.why or _did_less(self._script, work):
                if who == "ours":
                    raise RuntimeError(f"ours, {size}: {why}")
                self._report.skip(f"{who}, {size}", why)
                continue
            job = taken(self._script.roots[work.root], outcome.said[1])
            rows.append((who, milliseconds(job.start), milliseconds(job.iteration), milliseconds(job.whole)))
            ours = ours or job.whole
            if who != "ours":
                self._report.at_least(f"{size}, the job: {who} / ours", job.whole / ours, 1)
        self._report.table((size, "first cell ms", "ms a cell", "ms the job"), rows)


def _did_less(script: Script, work: Work) -> str:
    """Nobody is compared who did less than was asked."""
    turns = work.count + 2 if work.kind == "children" else work.iterations
    asked = work.count if work.kind in ("sequential", "batch") else 0
    made = len(script.roots[work.root]), script.subcalls[work.sub]
    if made == (turns, asked):
        return ""
    return f"made {made[0]} turns and {made[1]} subcalls, where {turns} and {asked} were to be made"
