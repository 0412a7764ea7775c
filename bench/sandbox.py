"""A confined session against the start of a bare interpreter, and a cell against an echo over a bare socket pair."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from typing import Self

import sandbox
from bench.measure import Report, interleaved, median, milliseconds, timed, times


def run(report: Report, *, quick: bool = False) -> None:
    report.begin("time to a confined session; round trip of a cell")
    asyncio.run(_measure(report, rounds=4 if quick else 40))


async def _measure(report: Report, *, rounds: int) -> None:
    policy = sandbox.Policy()
    first = await _opening(policy)  # starts the zygote, once per process
    loop = asyncio.get_running_loop()

    def opened() -> float:
        return asyncio.run_coroutine_threadsafe(_opening(policy), loop).result()

    session = await sandbox.open_session(policy)

    def celled() -> float:
        return asyncio.run_coroutine_threadsafe(_cell(session), loop).result()

    with _Echo() as echo:
        cases = {"session": opened, "python -c pass": _bare_python, "cell": celled, "echo": echo.round_trip}
        await asyncio.to_thread(interleaved, cases, rounds=2)
        taken = await asyncio.to_thread(interleaved, cases, rounds=rounds)
    await session.close()
    _tell(report, {name: median(found) for name, found in taken.items()}, first=first)


def _tell(report: Report, p50: dict[str, float], *, first: float) -> None:
    bare, echo = p50["python -c pass"], p50["echo"]
    report.table(
        ("p50", "ms", "ratio"),
        [
            ("python -c pass", milliseconds(bare), "1x"),
            ("confined session, open", milliseconds(p50["session"]), times(p50["session"] / bare)),
            ("  the first of a process", milliseconds(first), times(first / bare)),
            ("socket pair echo, other process", milliseconds(echo), "1x"),
            ("trivial cell", milliseconds(p50["cell"]), times(p50["cell"] / echo)),
        ],
    )
    report.at_most("confined session / bare interpreter", p50["session"] / bare, 1.5)
    report.at_most("cell over the echo", (p50["cell"] - echo) * 1000, 2, unit=" ms")


async def _opening(policy: sandbox.Policy) -> float:
    began = time.perf_counter()
    session = await sandbox.open_session(policy)
    taken = time.perf_counter() - began
    await session.kill()
    return taken


async def _cell(session: sandbox.Session) -> float:
    began = time.perf_counter()
    async for event in session.execute("x = 1\nprint(x)", deadline_seconds=10):
        last = event
    assert isinstance(last, sandbox.Finished)
    return time.perf_counter() - began


def _bare_python() -> float:
    return timed(lambda: subprocess.run([sys.executable, "-I", "-c", "pass"], check=True, env={}))


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
