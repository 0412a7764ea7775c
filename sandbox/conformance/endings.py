"""Cases: however code ends, the session says so, nothing of it lives on, and the host goes on."""

import asyncio
import os
import time
from pathlib import Path

from sandbox.conformance.case import Stand, Trial, case, cases_of, told
from sandbox.events import Output

_MIXED = """
def leave(stop):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            if stop: os.kill(os.getpid(), 19)
            while True: time.sleep(1)
        os._exit(0)
for stop in (False, True):
    leave(stop)
time.sleep(0.2)
print('up', flush=True)
time.sleep(60)
"""


def _in_namespace_of(pid: int) -> set[int]:
    """Every process that shares the pid namespace of this one, or only it where that namespace is the host's."""
    try:
        own = os.readlink(f"/proc/{pid}/ns/pid")
    except PermissionError:  # an ordinary user may not look; the kernel still tells whether it lives
        return {pid}
    if own == os.readlink("/proc/self/ns/pid"):
        return {pid}
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "ns/pid") == own:
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


async def _kill_when_up(trial: Trial, code: str) -> set[int]:
    """Run code until it says that it is up, kill the session, return the processes there were."""
    members: set[int] = set()
    async for event in trial.session.execute(code, deadline_seconds=60):
        if isinstance(event, Output) and "up" in event.text:
            members = await asyncio.to_thread(_in_namespace_of, trial.session.pid)
            report = await trial.session.kill()
            assert not report.survivors, f"the kill left {report.survivors}"
    assert members, "the code did not come up"
    return members


@case(
    "A kill leaves no process: forked twice, in sessions of their own, stopped.",
    needs="fork shared-kernel pid-ns",
)
async def kill_leaves_nothing(stand: Stand) -> None:
    async with stand.open() as trial:
        await trial.seen("report(1)")
        code = "import os, time\n" + _MIXED
        members = await _kill_when_up(trial, code)
        assert len(members) >= 4, f"the code's processes were not there before the kill: {members}"
        left = {pid for pid in members if _is_alive(pid)}
        assert not left, f"alive after the kill: {left}"


@case("A kill ends the process that runs cells.", needs="shared-kernel")
async def kill_ends_the_session(stand: Stand) -> None:
    async with stand.open() as trial:
        members = await _kill_when_up(trial, "print('up')\nwhile True:\n    pass")
        left = {pid for pid in members if _is_alive(pid)}
        assert not left, f"alive after the kill: {left}"
        assert not trial.session.alive, "the session is said to be alive"


def _is_alive(pid: int) -> bool:
    """A process whose parent has not yet taken note of its end is dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


async def _crash(stand: Stand, code: str, *, outcomes: frozenset[str] = frozenset({"crashed"})) -> None:
    async with stand.open() as trial:
        finished = await trial.raw(code, deadline=20)
        assert finished.outcome in outcomes, f"{code!r}: {told(finished)}"
        assert finished.state_lost == (finished.outcome in {"crashed", "violation"}), told(finished)
        if finished.state_lost:
            assert finished.detail, "the end of the session is not explained"
        else:
            await trial.expect_alive()


@case("A crash of the interpreter is an ordinary event, with its cause.")
async def crashes_are_events(stand: Stand) -> None:
    crashes = (
        "os.abort()",
        "ctypes.string_at(0)",
        "os._exit(3)",
        "os.kill(os.getpid(), 9)",
        "os.kill(os.getpid(), 15)",
        "import threading\nthreading.Thread(target=os._exit, args=(0,)).start()\ntime.sleep(9)",
    )
    for code in crashes:
        await _crash(stand, code)


@case("Recursion without end is an error or a crash, and never more.")
async def recursion_is_an_event(stand: Stand) -> None:
    either = frozenset({"error", "crashed"})
    await _crash(stand, "def f(): f()\nf()", outcomes=frozenset({"error"}))
    await _crash(
        stand,
        "sys.setrecursionlimit(10**9)\nclass A:\n    def __repr__(self): return repr(self)\nrepr(A())",
        outcomes=either,
    )
    await _crash(stand, "x = '(' * 5000 + ')' * 5000\ncompile(x, 'x', 'eval')", outcomes=either)
    await _crash(stand, "x = None\nfor _ in range(10**6): x = [x]\nrepr(x)", outcomes=either)


@case("The `except*` bug of CPython, which can kill the interpreter, is an ordinary event.")
async def except_star_is_an_event(stand: Stand) -> None:
    code = """
class G(ExceptionGroup):
    def split(self, *a): return (42, 42)
    def derive(self, excs): return 42
try:
    raise G('x', [ValueError(1)])
except* ValueError as e:
    e.x
"""
    await _crash(stand, code, outcomes=frozenset({"ok", "error", "crashed"}))


@case(
    "SystemExit, KeyboardInterrupt and exceptions that hide are errors of their cell, and the session goes on."
)
async def odd_exceptions_are_errors(stand: Stand) -> None:
    async with stand.open() as trial:
        for code in (
            "raise SystemExit(0)",
            "raise KeyboardInterrupt",
            "raise GeneratorExit",
            "class E(BaseException):\n    def __str__(self): raise SystemExit\nraise E",
            "raise ExceptionGroup('x', [ValueError(1)])",
        ):
            finished = await trial.run(code)
            assert (finished.outcome, finished.state_lost) == ("error", False), f"{code!r}: {told(finished)}"
            assert finished.error is not None, "an error without a description"
        await trial.expect_alive()


@case("Escapes for terminals do not come out of a session: not in output, not in errors.")
async def escapes_are_shown(stand: Stand) -> None:
    async with stand.open() as trial:
        finished = await trial.run("print('\\x1b[2J\\x9b1m\\x07\\r')\nraise ValueError('\\x1b]0;x\\x07')")
        texts = [
            finished.stdout,
            finished.error.message if finished.error else "",
            finished.error.traceback if finished.error else "",
        ]
        raw = [
            text
            for text in texts
            if any((ord(c) < 32 and c not in "\n\t") or 127 <= ord(c) < 160 for c in text)
        ]
        assert not raw, f"control characters came out: {raw!r}"
        assert "1b" in finished.stdout, "the output is not shown at all"


@case("Closing a session that is in use is quick and leaves it closed.")
async def closing_is_quick(stand: Stand) -> None:
    async with stand.open() as trial:
        await trial.run("x = 1")
        started = time.monotonic()
        await trial.session.close()
        assert time.monotonic() - started < 5, "closing took more than five seconds"
        assert not trial.session.alive, "the session is said to be alive"


CASES = cases_of(dict(globals()))
