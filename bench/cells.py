"""Start of a job and cost of an iteration, against a bare exec loop and other RLMs, all asked by one loopback model of no latency."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.measure import Report, median, milliseconds, times
from bench.peers import CannotBeHad, Peer, dspy_with_deno, peer
from tests.scripted_model import JsonObject, ScriptedModel

_SEARCHES: dict[str, Callable[[], Peer]] = {
    "rlms": lambda: peer("rlms"),
    "dspy-local": lambda: peer("dspy"),
    "dspy-deno": dspy_with_deno,
}
_JOBS = 2


class _Script:
    """Writes trivial cells and at last an answer, in the dialect of whoever asks; notes when each request came."""

    def __init__(self, iterations: int) -> None:
        self._iterations = iterations
        self.arrived: list[float] = []

    def __call__(self, request: JsonObject, _number: int) -> str:
        is_last = len(self.arrived) % self._iterations == self._iterations - 1
        self.arrived.append(time.monotonic())
        # Each turn shows something else: a job that repeats itself is ended.
        trivial = f"x = {len(self.arrived)}\nprint(x)"
        if request["model"] in ("rlms", "floor"):
            code = 'answer["content"] = "done"\nanswer["ready"] = True' if is_last else trivial
            return f"Next.\n```repl\n{code}\n```"
        code = 'SUBMIT(answer="done")' if is_last else trivial
        block = f"```python\n{code}\n```"
        if request["model"] == "dspy":
            return f"[[ ## reasoning ## ]]\nNext.\n\n[[ ## code ## ]]\n{block}\n\n[[ ## completed ## ]]"
        return f"Next.\n\n{block}"


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """Seconds. `cold` and `warm`: from the call to the first executed cell, in a new process and again in the same."""

    imported: float
    cold: float
    warm: float
    iteration: float
    said: list[dict[str, float]]


def run(report: Report, *, quick: bool = False, only: tuple[str, ...] | None = None) -> None:
    iterations, rounds = (4, 1) if quick else (20, 5)
    report.begin(f"start and iterations of a job of {iterations} trivial cells, model latency 0")
    people = {"floor": Peer(python=Path(sys.executable)), "ours": Peer(python=Path(sys.executable))}
    people |= _found(report, () if quick and only is None else only or tuple(_SEARCHES))
    taken: dict[str, list[_Measured]] = {name: [] for name in people}
    for _ in range(rounds):
        for name, found in people.items():
            taken[name].append(_measure(name, found, iterations=iterations))
    _tell(report, {name: _middle(measured) for name, measured in taken.items()})


def _found(report: Report, names: tuple[str, ...]) -> dict[str, Peer]:
    found: dict[str, Peer] = {}
    for name in names:
        try:
            found[name] = _SEARCHES[name]()
        except CannotBeHad as why:
            report.skip(name, str(why))
    return found


def _measure(name: str, found: Peer, *, iterations: int) -> _Measured:
    script = _Script(iterations)
    with ScriptedModel(script, keep_requests=False) as model:
        jobs = json.dumps([{"root": name.split("-", maxsplit=1)[0], "iterations": iterations}] * _JOBS)
        own = ["-m", "bench.own_jobs", model.base_url, jobs]
        others = [str(Path(__file__).with_name("peer_jobs.py")), name, model.base_url, jobs]
        done = subprocess.run(
            [str(found.python), *(own if name == "ours" else others)],
            env={**os.environ, **found.env, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    if done.returncode or len(script.arrived) != iterations * _JOBS:
        raise RuntimeError(f"{name} asked {len(script.arrived)} times: {done.stderr[-2000:]}")
    said = [json.loads(line) for line in done.stdout.splitlines()]
    runs = [script.arrived[start : start + iterations] for start in range(0, len(script.arrived), iterations)]
    starts = [asked[1] - moments["began"] for asked, moments in zip(runs, said[1:], strict=True)]
    gaps = [later - earlier for asked in runs for earlier, later in pairwise(asked[1:])]
    return _Measured(
        imported=said[0]["import"], cold=starts[0], warm=starts[1], iteration=median(gaps), said=said
    )


def _middle(measured: list[_Measured]) -> _Measured:
    names = ("imported", "cold", "warm", "iteration")
    middle = {name: median([getattr(one, name) for one in measured]) for name in names}
    return _Measured(**middle, said=sorted(measured, key=lambda one: one.cold)[len(measured) // 2].said)


def _tell(report: Report, found: dict[str, _Measured]) -> None:
    ours, floor = found["ours"], found["floor"]
    report.table(
        (
            "",
            "import ms",
            "first job's first cell ms",
            "next job's ms",
            "ms an iteration",
            "start against ours",
        ),
        [
            (
                name,
                milliseconds(one.imported),
                milliseconds(one.cold),
                milliseconds(one.warm),
                milliseconds(one.iteration),
                f"{times(one.cold / ours.cold)}, next {times(one.warm / ours.warm)}",
            )
            for name, one in found.items()
        ],
    )
    opened, cold, warm = ours.said
    report.table(
        ("where our start goes, ms", "first job", "next job"),
        [
            ("imports", milliseconds(opened["import"]), ""),
            ("home: database, queue, worker", milliseconds(opened["open"]), ""),
            ("submit, wake-up, claim", milliseconds(cold["claimed"]), milliseconds(warm["claimed"])),
            ("sandbox", *(milliseconds(job["sandbox"] - job["claimed"]) for job in (cold, warm))),
            ("first turn asked", *(milliseconds(job["asked"] - job["sandbox"]) for job in (cold, warm))),
            ("answered, cell executed", *(milliseconds(job["cell"] - job["asked"]) for job in (cold, warm))),
        ],
    )
    report.at_most(
        "an iteration over the bare exec loop", (ours.iteration - floor.iteration) * 1000, 5, unit=" ms"
    )
    if "dspy-deno" in found:
        deno = found["dspy-deno"]
        report.at_least("start of dspy's Deno / ours, first job of a process", deno.cold / ours.cold, 20)
        report.at_least("start of dspy's Deno / ours, further jobs", deno.warm / ours.warm, 20)
