"""evidence.search inside a confined cell against cat, grep and rg on the same file, all in page cache."""

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import sandbox
from bench.evidence import write_log
from bench.measure import Report, interleaved, median, milliseconds, timed, times

_MB = 1_000_000
#: What is asked, as a pattern that Python, grep -E and rg read alike.
_PATTERNS = {
    "absent literal": "no such words anywhere",
    "rare literal": "connection refused by upstream",
    "frequent literal": " ERROR ",
    "regex, literal prefix": r" ERROR (auth|ledger)\[[0-9]+\]: request",
}
_CELL = """import time
began = time.perf_counter()
hits = sum(1 for _ in evidence.search({pattern!r}))
print(hits, time.perf_counter() - began)
"""
_SETUP = "from sandbox.guest.evidence import Evidence\nevidence = Evidence('/evidence')\n"


def run(report: Report, *, quick: bool = False) -> None:
    size = 20 * _MB if quick else 1_000 * _MB
    report.begin(f"evidence.search over {size // _MB:,} MB in page cache")
    rg = shutil.which("rg")
    if rg is None:
        report.skip("rg", "ripgrep is not installed here")
    with tempfile.TemporaryDirectory(prefix="custody-bench-") as folder:
        log = write_log(Path(folder) / "large.log", size_bytes=size)
        asyncio.run(_measure(report, log, rg=rg, rounds=2 if quick else 5))


async def _measure(report: Report, log: Path, *, rg: str | None, rounds: int) -> None:
    session = await sandbox.open_session(
        sandbox.Policy(evidence=(sandbox.Mount(source=str(log), target=log.name),))
    )
    await _cell(session, _SETUP)
    cat = median(await asyncio.to_thread(_times_of, ["cat", str(log)], rounds))
    rows: list[tuple[str, ...]] = [("cat", milliseconds(cat), "", "", "1x")]
    loop = asyncio.get_running_loop()
    for about, pattern in _PATTERNS.items():
        counts: dict[str, int] = {}
        cases = {"ours": _searcher(session, pattern, counts, loop=loop)}
        cases["grep"] = _counter(["grep", "-cE"], pattern, log=log, counts=counts)
        if rg is not None:
            cases["rg"] = _counter([rg, "-c", "--include-zero"], pattern, log=log, counts=counts)
        found = await asyncio.to_thread(interleaved, cases, rounds=rounds)
        assert len(set(counts.values())) == 1, f"they count differently: {counts}"
        taken = {name: median(seconds) for name, seconds in found.items()}
        rows.append(_row(f"{about} ({counts['ours']:,} hits)", taken, cat=cat))
        # Every hit of ours becomes an object with an address, so that frequent hits cost more than counting lines.
        limit = 3 if counts["ours"] > 100_000 else 2
        report.at_most(f"{about}: ours / grep", taken["ours"] / taken["grep"], limit)
    await session.close()
    report.table(("what", "ms", "against grep", "against rg", "against cat"), rows)


def _row(about: str, taken: dict[str, float], *, cat: float) -> tuple[str, ...]:
    ours = taken["ours"]
    against_rg = times(ours / taken["rg"]) if "rg" in taken else "-"
    return (about, milliseconds(ours), times(ours / taken["grep"]), against_rg, times(ours / cat))


def _times_of(command: list[str], rounds: int) -> list[float]:
    return [
        timed(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True)) for _ in range(rounds)
    ]


def _searcher(
    session: sandbox.Session, pattern: str, counts: dict[str, int], *, loop: asyncio.AbstractEventLoop
) -> Callable[[], float]:
    def case() -> float:
        printed = asyncio.run_coroutine_threadsafe(
            _cell(session, _CELL.format(pattern=pattern)), loop
        ).result()
        hits, seconds = printed.split()
        counts["ours"] = int(hits)
        return float(seconds)

    return case


def _counter(command: list[str], pattern: str, *, log: Path, counts: dict[str, int]) -> Callable[[], float]:
    def count() -> None:
        whole = [*command, "-e", pattern, str(log)]
        # Both exit with 1 when there is no hit.
        done = subprocess.run(whole, capture_output=True, text=True, check=False, env={"LC_ALL": "C"})
        counts[Path(command[0]).name] = int(done.stdout)

    return lambda: timed(count)


async def _cell(session: sandbox.Session, code: str) -> str:
    printed = ""
    async for event in session.execute(code, deadline_seconds=120):
        if isinstance(event, sandbox.Output) and event.stream == "stdout":
            printed += event.text
        elif isinstance(event, sandbox.Finished) and event.outcome != "ok":
            raise RuntimeError(f"the cell failed: {event}")
    return printed
