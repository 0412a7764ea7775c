"""Containers by runc and by gVisor: to open one, one cell, to kill and remove it; against a bare interpreter in the same run."""

import asyncio
import subprocess
import sys
import time

import sandbox
from bench.measure import Report, interleaved, median, milliseconds, timed, times

_RUNTIMES = ("runc", "runsc")


def run(report: Report, *, quick: bool = False) -> None:
    report.begin("a container per session: open, cell, kill and remove")
    usable = []
    for runtime in _RUNTIMES:
        found = sandbox.probe("docker", runtime)
        if found.usable:
            usable.append(runtime)
        else:
            report.skip(f"containers by {runtime}", "; ".join(found.advice))
    if usable:
        asyncio.run(_measure(report, usable, rounds=3 if quick else 30))


async def _measure(report: Report, runtimes: list[str], *, rounds: int) -> None:
    loop = asyncio.get_running_loop()
    kept: dict[str, list[tuple[float, float]]] = {runtime: [] for runtime in runtimes}

    def opened(runtime: str) -> float:
        taken = asyncio.run_coroutine_threadsafe(_life(runtime), loop).result()
        kept[runtime].append(taken[1:])
        return taken[0]

    cases = {runtime: lambda runtime=runtime: opened(runtime) for runtime in runtimes}
    cases["python -c pass"] = _bare_python
    taken = await asyncio.to_thread(interleaved, cases, rounds=rounds)
    bare = median(taken["python -c pass"])
    rows = [("python -c pass", milliseconds(bare), "1x", "", "", "")]
    for runtime in runtimes:
        opening = median(taken[runtime])
        cells, kills = zip(*kept[runtime], strict=True)
        p99 = sorted(kills)[min(len(kills) - 1, int(len(kills) * 0.99))]
        rows.append(
            (
                runtime,
                milliseconds(opening),
                times(opening / bare),
                milliseconds(median(cells)),
                milliseconds(median(kills)),
                milliseconds(p99),
            )
        )
        report.at_most(f"container by {runtime} / bare interpreter", opening / bare, 60)
        report.at_most(f"cell by {runtime}", median(cells) * 1000, 5, unit=" ms")
        report.at_most(f"kill and remove by {runtime}, p99", p99 * 1000, 2000, unit=" ms")
    report.table(("p50", "open ms", "ratio", "cell ms", "kill+remove ms", "its p99 ms"), rows)


async def _life(runtime: str) -> tuple[float, float, float]:
    """Open a container, run cells, kill it: the seconds of opening, of a cell, and of the kill until it is removed."""
    began = time.perf_counter()
    session = await sandbox.open_session(sandbox.Policy(backend="docker", runtime=runtime))
    opening = time.perf_counter() - began
    cells = [await _cell(session) for _ in range(10)]
    began = time.perf_counter()
    report = await session.kill()
    assert not report.survivors
    return opening, median(cells), time.perf_counter() - began


async def _cell(session: sandbox.Session) -> float:
    began = time.perf_counter()
    async for event in session.execute("x = 1\nprint(x)", deadline_seconds=30):
        last = event
    assert isinstance(last, sandbox.Finished)
    assert last.outcome == "ok"
    return time.perf_counter() - began


def _bare_python() -> float:
    return timed(lambda: subprocess.run([sys.executable, "-I", "-c", "pass"], check=True, env={}))
