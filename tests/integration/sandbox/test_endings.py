"""How sessions end: deadlines, kills, deaths of the processes around them, and guests that break the channel's rules."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sandbox import Finished, HostCall, Limits, Policy, open_session
from sandbox.backends.namespaces import backend, cgroups


def processes_of_session(leader: int) -> list[int]:
    """Every living process that the zygote `leader` started, at any depth."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def namespace_of(pid: int) -> str:
    return str(Path(f"/proc/{pid}/ns/pid").readlink())


def processes_in(namespace: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str((entry / "ns/pid").readlink()) == namespace:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_until(condition, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize(
    "code",
    ["while True: pass", "import time; time.sleep(99)", "import re; re.match('(a+)+$', 'a' * 40 + 'b')"],
)
def test_most_code_stops_at_its_deadline_and_keeps_its_variables(in_box, code):
    async def story(box):
        await box.run("kept = 1")
        finished = await box.run(code, deadline=0.2)

        assert (finished.outcome, finished.state_lost) == ("timed_out", False)
        assert await box.value("kept") == "1"

    in_box(story)


@pytest.mark.parametrize(
    "code",
    [
        "sum(range(10**11))",
        "import time\nwhile True:\n    try:\n        time.sleep(9)\n    except KeyboardInterrupt: pass",
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
    ],
)
def test_code_that_does_not_react_is_killed_and_the_loss_is_said(in_box, code):
    async def story(box):
        started = time.monotonic()
        finished = await box.run(code, deadline=0.2)

        assert (finished.outcome, finished.state_lost) == ("timed_out", True)
        assert time.monotonic() - started < 5
        assert not box.session.alive

    in_box(story, interrupt_grace_seconds=0.3)


def test_an_awaiting_cell_stops_at_its_deadline_and_the_loop_survives(in_box):
    async def story(box):
        finished = await box.run("import asyncio; await asyncio.sleep(99)", deadline=0.2)

        assert (finished.outcome, finished.state_lost) == ("timed_out", False)
        assert await box.value("await asyncio.sleep(0, 'on')") == "'on'"

    in_box(story)


def test_the_clock_stands_still_while_the_host_owes_an_answer(in_box):
    async def story(box):
        code = "from sandbox.guest.calls import host_call\nhost_call('slow', {})"
        async for event in box.session.execute(code, deadline_seconds=0.3):
            if isinstance(event, HostCall):
                await asyncio.sleep(0.6)
                await box.session.answer(event.call_id, "worth the wait")

        assert (event.outcome, event.stdout) == ("ok", "'worth the wait'\n")

    in_box(story, calls=frozenset({"slow"}))


@pytest.mark.requirement("LESSON-29")
def test_a_deadline_also_holds_while_nobody_reads_the_events():
    async def main():
        session = await open_session(Policy(interrupt_grace_seconds=0.2))
        cell = session.execute("print('up', flush=True)\nsum(range(10**11))", deadline_seconds=0.2)
        await anext(cell)
        await asyncio.sleep(1.5)

        assert not session.alive
        assert [event async for event in cell][-1].outcome == "timed_out"

    asyncio.run(main())


def test_an_interrupt_is_told_apart_from_a_deadline(in_box):
    async def story(box):
        async for event in box.session.execute("print('up')\nwhile True: pass", deadline_seconds=20):
            if not isinstance(event, Finished):
                await box.session.interrupt()

        assert (event.outcome, event.state_lost) == ("interrupted", False)
        assert await box.value("'alive'") == "'alive'"

    in_box(story)


def test_interrupts_that_come_too_late_do_not_hit_the_next_cell(in_box):
    async def story(box):
        for number in range(50):
            cell = box.session.execute("pass", deadline_seconds=5)
            async for _ in cell:
                box.session._guest.interrupt()
            assert await box.value(f"{number}") == str(number)

    in_box(story)


def test_a_kill_leaves_no_process_and_a_second_kill_says_the_same():
    async def main():
        session = await open_session(Policy())
        code = "import os, time\nfor _ in range(5):\n    if os.fork() == 0:\n        os.setsid()\n        time.sleep(600)\nprint('up')\ntime.sleep(600)"
        namespace = namespace_of(session.pid)
        async for event in session.execute(code, deadline_seconds=60):
            if not isinstance(event, Finished):
                assert len(processes_in(namespace)) == 7
                report = await session.kill()
                assert processes_in(namespace) == []

        assert report.survivors == ()
        assert (event.outcome, event.state_lost) == ("interrupted", True)
        assert await session.kill() == report
        assert leftover_groups(os.getpid()) == []

    asyncio.run(main())


def leftover_groups(pid: int) -> list[Path]:
    return [path for h in cgroups.find_hierarchies() for path in h.parent.glob(f"custody-{pid}-*")]


def test_leaving_a_cell_early_kills_the_session():
    async def main():
        session = await open_session(Policy())
        cell = session.execute("print('up', flush=True)\nimport time; time.sleep(600)", deadline_seconds=60)
        await anext(cell)
        await cell.aclose()

        assert not session.alive

    asyncio.run(main())


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        ("import os; os._exit(3)", "status 3"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ],
)
def test_a_dying_interpreter_is_a_normal_event(in_box, code, detail):
    async def story(box):
        finished = await box.run(code)

        assert (finished.outcome, finished.state_lost) == ("crashed", True)
        assert detail in finished.detail

    in_box(story)


def test_the_cpu_limit_ends_the_code(in_box):
    async def story(box):
        finished = await box.run("while True: pass", deadline=30)

        assert finished.outcome == "crashed"
        assert "CPU limit" in finished.detail or "SIGKILL" in finished.detail

    in_box(story, limits=Limits(cpu_seconds=1))


WORKER = """
import asyncio, sandbox
from sandbox.backends.namespaces import backend
async def main():
    sessions = [await sandbox.open_session(sandbox.Policy()) for _ in range(3)]
    code = "import os, time\\nif os.fork() == 0:\\n    os.setsid()\\n    while True: pass\\nprint('up', flush=True)\\nsum(range(10**11))"
    async for event in sessions[0].execute(code, deadline_seconds=600):
        print(backend.zygotes.current().pid, *(s.pid for s in sessions), flush=True)
asyncio.run(main())
"""


def test_kill_9_of_the_worker_leaves_nothing_alive():
    with subprocess.Popen([sys.executable, "-c", WORKER], stdout=subprocess.PIPE, text=True) as worker:
        zygote, *sandboxes = [int(word) for word in worker.stdout.readline().split()]
        namespaces = [namespace_of(pid) for pid in sandboxes]
        assert all(processes_in(namespace) for namespace in namespaces)

        worker.send_signal(signal.SIGKILL)

        assert wait_until(lambda: not any(processes_in(namespace) for namespace in namespaces))
        assert wait_until(lambda: not processes_of_session(zygote))
        assert wait_until(lambda: not leftover_groups(worker.pid))


def test_kill_9_of_the_zygote_ends_its_sandboxes_and_the_next_session_gets_a_new_one():
    async def main():
        session = await open_session(Policy())
        first = backend.zygotes.current().pid
        namespace = namespace_of(session.pid)
        os.kill(first, signal.SIGKILL)

        assert await asyncio.to_thread(wait_until, lambda: not processes_in(namespace))
        successor = await open_session(Policy())
        events = [event async for event in successor.execute("1", deadline_seconds=5)]
        assert events[-1].outcome == "ok"
        assert backend.zygotes.current().pid != first
        await session.close()
        await successor.close()
        assert leftover_groups(os.getpid()) == []

    asyncio.run(main())


def test_the_end_of_the_thread_that_opened_the_first_session_ends_nothing():
    """The kernel's death signal follows the thread that forked, so that thread must not be a passing one."""
    program = """
import asyncio, threading, sandbox
from sandbox.backends.namespaces import backend
def open_and_close():
    asyncio.run(main())
async def main():
    session = await sandbox.open_session(sandbox.Policy())
    print([event async for event in session.execute("1", deadline_seconds=9)][-1].outcome)
    await session.close()
for _ in range(2):
    thread = threading.Thread(target=open_and_close)
    thread.start()
    thread.join()
    print(backend.zygotes.current().pid)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    first, zygote, second, same_zygote = run.stdout.split()

    assert first == second == "ok"
    assert zygote == same_zygote


FORGE = """
import socket, struct, json
link = socket.socket(fileno=3)
def forge(body):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    link.sendall(struct.pack('>I', len(body)) + body)
"""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("link.sendall(struct.pack('>I', 2**32 - 1))", "was announced"),
        ("forge(b'[' * 100_000)", "too deeply"),
        ("forge(b'{\"t\":' + b'[' * 70 + b']' * 70 + b'}')", "levels deep"),
        ("forge(b'\\xff\\xfe')", "not JSON"),
        ("forge(b'{\"t\": ' + b'9' * 5000 + b'}')", "not JSON"),
        ("forge(b'{\"t\": NaN}')", "NaN"),
        ("forge(b'{\"t\": 1e999}')", "out of range"),
        ('forge(b\'{"t": "\\\\ud800"}\')', "surrogate"),
        ("forge([1])", "object"),
        ("forge({'t': 'answer', 'id': 1, 'value': 'forged'})", "unknown frame"),
        ("forge({'t': 'call', 'cell': 9, 'id': 1, 'name': 'echo', 'payload': {}})", "does not exist"),
        ("forge({'t': 'call', 'cell': 1, 'id': True, 'name': 'echo', 'payload': {}})", "whole number"),
        (
            "forge({'t': 'call', 'cell': 1, 'id': 1, 'name': 'echo', 'payload': [], 'x': 1})",
            "exactly the keys",
        ),
        (
            "[forge({'t': 'call', 'cell': 1, 'id': 1, 'name': 'keep', 'payload': {}}) for _ in 'ab']",
            "used twice",
        ),
        (
            "[forge({'t': 'call', 'cell': 1, 'id': i, 'name': 'keep', 'payload': {}}) for i in range(9)]",
            "in flight",
        ),
        (
            "[forge({'t': 'call', 'cell': 0, 'id': i, 'name': 'echo', 'payload': {}}) for i in range(20000)]",
            "ended",
        ),
        ("import os; link.shutdown(2)", ""),
    ],
)
def test_a_guest_that_breaks_the_rules_ends_in_a_labelled_outcome(in_box, code, reason):
    async def story(box):
        events = [
            e
            async for e in box.session.execute(
                f"{FORGE}\n{code}\nimport time; time.sleep(9)", deadline_seconds=9
            )
        ]

        assert (events[-1].outcome, events[-1].state_lost) == ("violation" if reason else "crashed", True)
        assert reason in events[-1].detail
        assert not box.session.alive

    in_box(story, calls=frozenset({"echo", "keep"}), limits=Limits(calls_in_flight=8))


def test_a_guest_that_ends_its_cell_early_only_harms_itself(in_box):
    """A forged end is the code's own; what it still prints may stand in the next cell of the same session, nowhere else."""

    async def story(box):
        done = "{'t': 'done', 'cell': 1, 'outcome': 'ok', 'error': None, 'cpu_ms': 0, 'memory_bytes': 0}"
        finished = await box.run(f"{FORGE}\nforge({done})\nprint('late')\nfor i in range(5): forge({done})")

        assert finished.outcome == "ok"
        assert await box.value("'next'") in ("'next'", "late\n'next'")

    in_box(story)


def test_a_guest_that_does_not_read_cannot_hold_the_host(in_box, monkeypatch):
    monkeypatch.setattr("sandbox.channel._WRITE_SECONDS", 0.5)
    code = "import ctypes, threading\nfrom sandbox.guest.calls import host_call\nthreading.Thread(target=host_call, args=('big', {})).start()\nimport signal, time\nwhile True:\n    sum(range(10**8))"

    async def story(box):
        async for event in box.session.execute(code, deadline_seconds=3):
            if isinstance(event, HostCall):
                await box.session.answer(event.call_id, "x" * (8 << 20))

        assert event.outcome in {"violation", "timed_out"}

    in_box(story, calls=frozenset({"big"}))


def test_two_sessions_do_not_see_each_other(in_box, tmp_path):
    async def story(box):
        other = await open_session(Policy())
        code = "open('/tmp/x', 'w').write('mine'); import os; os.getuid()"
        events = [event async for event in other.execute(code, deadline_seconds=5)]
        await box.run("import os")

        assert await box.value("os.path.exists('/tmp/x')") == "False"
        assert events[-1].stdout.strip() != await box.value("os.getuid()") or os.geteuid() != 0
        await other.close()
        assert await box.value("'alive'") == "'alive'"

    in_box(story)


def test_a_kill_from_another_thread_needs_no_event_loop():
    """The fence of a lost lease must work while the loop that opened the session is stuck."""

    async def main() -> None:
        session = await open_session(Policy())
        namespace = namespace_of(session.pid)
        running = asyncio.create_task(anext(session.execute("while True: pass", deadline_seconds=60)))
        await asyncio.sleep(0)
        await asyncio.to_thread(wait_until, lambda: len(processes_in(namespace)) >= 2)

        killer = threading.Thread(target=session.kill_now)
        killer.start()
        # The loop is blocked from here on: nothing but the kill itself can end the processes.
        assert wait_until(lambda: not processes_in(namespace))
        killer.join()

        ended = await running
        assert isinstance(ended, Finished)
        assert ended.state_lost
        await session.close()
        session.kill_now()

    asyncio.run(main())


def test_calls_that_nobody_declared_do_not_stretch_the_deadline(in_box):
    code = """
import threading
from sandbox.guest.calls import host_call
def ask():
    while True:
        try: host_call('nope', {})
        except Exception: pass
for _ in range(8): threading.Thread(target=ask, daemon=True).start()
while True: pass
"""

    async def story(box):
        finished = await box.run(code, deadline=1.0)

        assert finished.outcome in {"timed_out", "violation"}
        assert box.calls == []

    in_box(story)


def test_more_than_a_thousand_undeclared_calls_are_a_violation(in_box):
    code = """
from sandbox.guest.calls import host_call
for _ in range(2000):
    try: host_call('nope', {})
    except Exception: pass
"""

    async def story(box):
        finished = await box.run(code)

        assert finished.outcome == "violation"
        assert "not declared" in finished.detail

    in_box(story)


def test_what_an_interrupted_cell_forked_is_killed_with_it(in_box):
    code = """
import os, signal, time
if os.fork() == 0:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True: pass
while True: pass
"""

    async def story(box):
        await box.run("kept = 1")
        finished = await box.run(code, deadline=0.5)

        assert (finished.outcome, finished.state_lost) == ("timed_out", False)
        running = (
            "[n for n in os.listdir('/proc') if n.isdigit() and ' Z ' not in open(f'/proc/{n}/stat').read()]"
        )
        assert await box.value(f"kept, {running}") == "(1, ['1', '2'])"

    in_box(story)


def test_what_a_cell_forked_lives_on_when_the_cell_was_not_interrupted(in_box):
    async def story(box):
        await box.run("import os, time\nif os.fork() == 0: time.sleep(60)")

        assert await box.value("len([n for n in os.listdir('/proc') if n.isdigit()])") == "3"

    in_box(story)


def test_a_flood_of_output_between_cells_is_read_with_rests_and_belongs_to_nobody(in_box):
    async def story(box):
        await box.run("import os\nif os.fork() == 0:\n    while True: os.write(1, b'x' * 65536)")
        for _ in range(200):
            if box.session._resting:
                break
            await asyncio.sleep(0.02)
        assert box.session._resting

        finished = await box.run("os.kill(-1, 9)\nprint('mine')")
        assert finished.stdout.endswith("mine\n")
        assert not box.session._resting

    in_box(story)
