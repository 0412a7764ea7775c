"""A confined session against a bare interpreter's start, a cell against an echo over a socket pair, and what an idle one costs."""

import asyncio
import contextlib
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Self

import sandbox
from bench.measure import Report, interleaved, median, milliseconds, timed, times

_CPU_BOUND = """
import time
def work():
    total = 0
    for i in range(400_000):
        total += i * i % 7
    return total
began = time.perf_counter()
work()
print(time.perf_counter() - began)
"""


def run(report: Report, *, quick: bool = False) -> None:
    report.begin("time to a confined session; round trips; what an idle sandbox costs")
    asyncio.run(_openings(report, rounds=4 if quick else 60))
    asyncio.run(_round_trips(report, rounds=20 if quick else 300))
    asyncio.run(_growth(report, cells=200 if quick else 10_000))
    asyncio.run(_kills(report, rounds=5 if quick else 100))
    asyncio.run(_native_speed(report, rounds=3 if quick else 40))
    asyncio.run(_many_idle(report, count=5 if quick else 500))


def _share(taken: list[float], part: float) -> float:
    return sorted(taken)[min(len(taken) - 1, int(len(taken) * part))]


# -------------------------------------------------------------------- opening


async def _openings(report: Report, *, rounds: int) -> None:
    policy, pooled = sandbox.Policy(), sandbox.Policy(limits=sandbox.Limits(open_files=255))
    first = await _opening(policy)  # starts the zygote, once per process
    with tempfile.TemporaryDirectory() as folder:
        mount = sandbox.Mount(source=folder, target="logs")
        with_evidence = sandbox.Policy(limits=pooled.limits, evidence=(mount,))
        sandbox.warm(pooled, size=3)
        cases = {
            "python -c pass": _bare_python,
            "zygote": _on_this_loop(lambda: _opening(policy)),
            "pool": _on_this_loop(lambda: _opening(pooled, rest=0.05)),
            "pool with evidence": _on_this_loop(lambda: _opening(with_evidence, rest=0.05)),
        }
        await asyncio.to_thread(interleaved, cases, rounds=2)
        taken = await asyncio.to_thread(interleaved, cases, rounds=rounds)
        sandbox.warm(pooled, size=0)
    p50 = {name: median(found) for name, found in taken.items()}
    bare = p50["python -c pass"]
    report.table(
        ("open", "p50 ms", "p95 ms", "ratio"),
        [
            *(
                (name, milliseconds(p50[name]), milliseconds(_share(found, 0.95)), times(p50[name] / bare))
                for name, found in taken.items()
            ),
            ("the first of a process", milliseconds(first), "", times(first / bare)),
        ],
    )
    report.at_most("session from the zygote / bare interpreter", p50["zygote"] / bare, 0.6)
    report.at_most("  its p95 / p50", _share(taken["zygote"], 0.95) / p50["zygote"], 2)
    report.at_most("session from the pool / bare interpreter", p50["pool"] / bare, 0.1)
    report.at_most("  its p95 / p50", _share(taken["pool"], 0.95) / p50["pool"], 2)


def _on_this_loop(work: Callable[[], Awaitable[float]]) -> Callable[[], float]:
    loop = asyncio.get_running_loop()

    async def awaited() -> float:
        return await work()

    return lambda: asyncio.run_coroutine_threadsafe(awaited(), loop).result()


async def _opening(policy: sandbox.Policy, *, rest: float = 0.0) -> float:
    began = time.perf_counter()
    session = await sandbox.open_session(policy)
    taken = time.perf_counter() - began
    await session.close()
    await asyncio.sleep(rest)  # the pool refills
    return taken


def _bare_python() -> float:
    return timed(lambda: subprocess.run([sys.executable, "-I", "-c", "pass"], check=True, env={}))


# -------------------------------------------------------------------- cells and calls


@contextlib.asynccontextmanager
async def _session(**policy: frozenset[str]) -> AsyncIterator[sandbox.Session]:
    session = await sandbox.open_session(sandbox.Policy(**policy))  # type: ignore[arg-type]
    try:
        yield session
    finally:
        await session.close()


async def _cell(session: sandbox.Session, code: str = "x = 1\nprint(x)") -> sandbox.Finished:
    async for event in session.execute(code, deadline_seconds=60):
        if isinstance(event, sandbox.HostCall):
            await session.answer(event.call_id, event.payload)
    assert isinstance(event, sandbox.Finished)
    assert event.outcome == "ok", event
    return event


async def _round_trips(report: Report, *, rounds: int) -> None:
    calls = 50
    code = (
        "import time\nfrom sandbox.guest.calls import host_call\nbegan = time.perf_counter()\n"
        f"for _ in range({calls}): host_call('echo', {{}})\nprint((time.perf_counter() - began) / {calls})"
    )
    async with _session(calls=frozenset({"echo"})) as session:

        async def celled() -> float:
            began = time.perf_counter()
            await _cell(session)
            return time.perf_counter() - began

        async def called() -> float:
            return float((await _cell(session, code)).stdout)

        with _Echo() as echo:
            cases = {"echo": echo.round_trip, "cell": _on_this_loop(celled)}
            taken = await asyncio.to_thread(interleaved, cases, rounds=rounds)
        call = [await called() for _ in range(max(3, rounds // 10))]
    report.table(
        ("round trip", "p50 ms", "p95 ms"),
        [
            (name, milliseconds(median(found)), milliseconds(_share(found, 0.95)))
            for name, found in (
                ("socket pair echo, other process", taken["echo"]),
                ("trivial cell", taken["cell"]),
                ("host call", call),
            )
        ],
    )
    report.at_most("trivial cell", median(taken["cell"]) * 1000, 1, unit=" ms")
    report.at_most("host call", median(call) * 1000, 0.5, unit=" ms")


class _Echo:
    """A child that sends back what it reads: the least that two processes can do."""

    def __enter__(self) -> Self:
        self._mine, theirs = socket.socketpair()
        code = f"import socket\ns = socket.socket(fileno={theirs.fileno()})\nwhile b := s.recv(4096): s.sendall(b)"
        self._child = subprocess.Popen([sys.executable, "-I", "-c", code], pass_fds=(theirs.fileno(),))
        theirs.close()
        self.round_trip()
        return self

    def __exit__(self, *_error: object) -> None:
        self._mine.close()
        self._child.wait(10)

    def round_trip(self) -> float:
        return timed(lambda: (self._mine.sendall(os.urandom(64)), self._mine.recv(4096)))


# -------------------------------------------------------------------- memory, kills, speed


def _processes(session: sandbox.Session) -> list[int]:
    children = Path(f"/proc/{session.pid}/task/{session.pid}/children").read_text(encoding="ascii").split()
    return [session.pid, *(int(child) for child in children)]


def _kilobytes(pid: int, field: str) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise ValueError(field)


async def _growth(report: Report, *, cells: int) -> None:
    async with _session() as session:
        runner = _processes(session)[-1]
        early = 0
        for number in range(1, cells + 1):
            await _cell(session)
            if number == cells // 10:
                early = _kilobytes(runner, "Rss")
        late = _kilobytes(runner, "Rss")
    report.at_most(f"memory after {cells:,} cells / after {cells // 10:,}", late / early, 1.05)


async def _kills(report: Report, *, rounds: int) -> None:
    taken = []
    for _ in range(rounds):
        session = await sandbox.open_session(sandbox.Policy())
        await _cell(session, "import os, time\nfor _ in range(4):\n    if os.fork() == 0: time.sleep(60)")
        ended = await session.kill()
        assert ended.survivors == ()
        taken.append(ended.duration_ms)
        await session.close()
    report.at_most("kill of five processes to verified empty, p99", _share(taken, 0.99), 50, unit=" ms")


async def _native_speed(report: Report, *, rounds: int) -> None:
    interpreter = getattr(sys, "_base_executable", sys.executable)

    def bare() -> float:
        command = [interpreter, "-I", "-c", _CPU_BOUND]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    async def confined() -> float:
        async with _session() as session:
            return float((await _cell(session, _CPU_BOUND)).stdout)

    cases = {"bare": bare, "confined": _on_this_loop(confined)}
    taken = await asyncio.to_thread(interleaved, cases, rounds=rounds)
    report.at_most("CPU-bound code / plain CPython", median(taken["confined"]) / median(taken["bare"]), 1.02)


async def _many_idle(report: Report, *, count: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sessions: list[sandbox.Session] = []
    try:
        for _ in range(count):
            sessions.append(await sandbox.open_session(sandbox.Policy()))  # noqa: PERF401 - closed if one fails
        answered = [(await _cell(session, "6 * 7")).stdout == "42\n" for session in sessions]
        report.at_least(f"of {count} idle sandboxes, those that answer", sum(answered), count, unit="")
        sample = sessions[:: max(1, count // 50)]
        shares = [sum(_kilobytes(pid, "Pss") for pid in _processes(session)) for session in sample]
        report.at_most(f"idle sandbox among {count}, PSS", median(shares) / 1024, 4, unit=" MB")
    finally:
        for session in sessions:
            await session.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
