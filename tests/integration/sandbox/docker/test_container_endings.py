"""How containers end: deadlines, limits, kills, floods, and the deaths of the engine and of the worker."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sandbox
from sandbox import Limits, Policy
from sandbox.backends.docker import engine as engines
from sandbox.backends.docker import owners
from sandbox.backends.docker.readback import group_of

ROOT = Path(__file__).parents[4]


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(99)"])
def test_code_stops_at_its_deadline_and_keeps_its_variables(in_box, code):
    async def story(box):
        await box.run("kept = 1")
        finished = await box.run(code, deadline=0.3)

        assert (finished.outcome, finished.state_lost) == ("timed_out", False)
        assert await box.value("kept") == "1"

    in_box(story, interrupt_grace_seconds=5.0)


def test_code_that_does_not_react_is_killed_and_the_loss_is_said(in_box, own_containers):
    async def story(box):
        finished = await box.run("sum(range(10**11))", deadline=0.3)

        assert (finished.outcome, finished.state_lost) == ("timed_out", True)
        assert not box.session.alive
        assert own_containers.ids() == []

    in_box(story, interrupt_grace_seconds=0.5)


def test_an_interrupt_reaches_code_that_does_not_read_its_channel(in_box):
    """Orders are not stuck behind an answer that nobody takes."""

    async def story(box):
        code = (
            "import time\n"
            "from sandbox.guest.calls import host_call\n"
            "import threading\n"
            "asked = threading.Thread(target=host_call, args=('big', {})); asked.start()\n"
            "while True: pass"
        )

        async def interrupt():
            await asyncio.sleep(1.0)
            await box.session.interrupt()

        later = asyncio.create_task(interrupt())
        finished = await box.run(code, answer=lambda _call: "x" * 20_000_000)
        await later
        assert (finished.outcome, finished.state_lost) == ("interrupted", False)

    in_box(story, calls=frozenset({"big"}))


def test_a_kill_leaves_no_process_and_no_container(runtime, own_containers):
    async def main():
        session = await sandbox.open_session(Policy(backend="docker", runtime=runtime))
        group = group_of(session.pid)
        code = (
            "import os, time, signal\n"
            "for _ in range(5):\n"
            "    if os.fork() == 0:\n"
            "        os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "        while True: time.sleep(1)\n"
            "print('up', flush=True)\n"
            "time.sleep(99)"
        )
        cell = session.execute(code, deadline_seconds=60)
        assert (await anext(cell)).text == "up\n"
        assert group is not None
        before = group.members()
        assert len(before) >= 2

        report = await session.kill()

        assert report.survivors == ()
        assert [pid for pid in before if lives(pid)] == []
        assert own_containers.ids() == []
        finished = [event async for event in cell][-1]
        assert (finished.outcome, finished.state_lost) == ("interrupted", True)

    asyncio.run(main())


def test_a_flood_that_nobody_reads_cannot_hold_up_a_kill(runtime, own_containers):
    async def main():
        session = await sandbox.open_session(Policy(backend="docker", runtime=runtime))
        cell = session.execute("import os\nwhile True: os.write(1, b'x' * 65536)", deadline_seconds=60)
        await anext(cell)
        session._loop.remove_reader(session._streams["stdout"])  # a host that stopped reading
        await asyncio.sleep(1.0)

        report = await session.kill()

        assert (report.survivors, report.duration_ms < 5_000) == ((), True)
        assert own_containers.ids() == []

    asyncio.run(main())


def test_a_closed_session_is_removed(runtime, own_containers):
    async def main():
        session = await sandbox.open_session(Policy(backend="docker", runtime=runtime))
        await session.close()
        assert (await session.kill()).survivors == ()
        assert own_containers.ids() == []

    asyncio.run(main())


def test_a_crash_is_named(in_box):
    async def story(box):
        finished = await box.run("print('last words', flush=True)\nimport os; os._exit(3)")
        assert (finished.outcome, finished.stdout) == ("crashed", "last words\n")
        assert "status 3" in finished.detail

    in_box(story)


def test_a_segmentation_fault_is_named(in_box):
    async def story(box):
        finished = await box.run("import ctypes; ctypes.string_at(0)")
        assert (finished.outcome, finished.state_lost) == ("crashed", True)
        assert "SIGSEGV" in finished.detail

    in_box(story)


def test_memory_of_one_process_is_bounded_and_named(in_box, runtime):
    """This gVisor does not hold RLIMIT_DATA against mmap: there the control group ends the session."""

    async def story(box):
        finished = await box.run("b = b'x' * (400 << 20)")
        if runtime == "runsc":
            assert (finished.outcome, finished.limit) == ("crashed", "memory")
        else:
            assert finished.error.type == "MemoryError"
            assert await box.value("1 + 1") == "2"

    in_box(story, limits=Limits(memory_bytes=200 << 20))


def test_memory_of_many_processes_is_bounded_together(in_box):
    async def story(box):
        code = (
            "import os, time\n"
            "for _ in range(8):\n"
            "    if os.fork() == 0:\n"
            "        b = bytearray(b'x') * (150 << 20); time.sleep(30); os._exit(0)\n"
            "time.sleep(30)"
        )
        before = time.monotonic()
        finished = await box.run(code + "\nprint('all alive')", deadline=10)
        # Either the whole sandbox was killed at its limit, or children were: never did all of them live.
        if finished.state_lost and finished.outcome == "crashed":
            assert finished.limit == "memory"
        else:
            alive = await box.value(
                "import os\nn = 0\n"
                "try:\n"
                "    while True:\n"
                "        pid, _ = os.waitpid(-1, os.WNOHANG)\n"
                "        if not pid: break\n"
                "        n += 1\n"
                "except ChildProcessError: pass\n"
                "print(n)"
            )
            assert int(alive) >= 5
        assert time.monotonic() - before < 60

    in_box(story, limits=Limits(memory_bytes=200 << 20), interrupt_grace_seconds=5)


def test_processes_and_threads_are_bounded(in_box):
    async def story(box):
        code = (
            "import os, time\n"
            "n = 0\n"
            "try:\n"
            "    while n < 500:\n"
            "        if os.fork() == 0:\n"
            "            time.sleep(60); os._exit(0)\n"
            "        n += 1\n"
            "except OSError as error: print(n, type(error).__name__)"
        )
        started, _, error = (await box.value(code, deadline=60)).partition(" ")
        assert int(started) <= 20
        assert error == "BlockingIOError"
        assert await box.value("1 + 1") == "2"

    in_box(story, limits=Limits(processes=20))


@pytest.mark.parametrize("place", ["/workspace", "/tmp"])
def test_disk_is_bounded(in_box, place):
    async def story(box):
        code = (
            f"import os\nfd = os.open('{place}/big', os.O_CREAT | os.O_WRONLY)\ndone = 0\n"
            "try:\n"
            "    while done < 64 << 20: done += os.write(fd, b'x' * (1 << 20))\n"
            "except OSError as error: print(done, error.errno)"
        )
        written, number = (await box.value(code)).split()
        assert int(written) <= 8 << 20
        assert int(number) in {27, 28}
        sparse = await box.run(f"os.truncate('{place}/big', 1 << 40)")
        assert sparse.outcome == "error"

    in_box(story, limits=Limits(workspace_bytes=8 << 20, tmp_bytes=8 << 20))


def test_many_files_are_bounded(in_box):
    async def story(box):
        code = (
            "n = 0\n"
            "try:\n"
            "    while n < 5000: open(f'/workspace/{n}', 'w').close(); n += 1\n"
            "except OSError as error: print(n, error.errno)"
        )
        assert int((await box.value(code)).split()[0]) <= 500

    in_box(story, limits=Limits(workspace_inodes=500))


def test_open_files_are_bounded(in_box):
    async def story(box):
        code = "held = []\ntry:\n    while len(held) < 500: held.append(open('/dev/null'))\nexcept OSError: pass\nlen(held)"
        assert int(await box.value(code)) < 64
        await box.run("held.clear()")

    in_box(story, limits=Limits(open_files=64))


def test_cpu_time_is_bounded_and_named(in_box, runtime):
    async def story(box):
        finished = await box.run("while True: pass", deadline=30)
        assert (finished.outcome, finished.limit) == ("crashed", "cpu")

    in_box(story, limits=Limits(cpu_seconds=1))


def test_the_relay_takes_no_signal_and_its_memory_no_look(in_box, runtime):
    """Of gVisor: SIGKILL to pid 1 ends its sandbox, and pid 1's pipes can be opened. Code may end its own session."""
    numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP, signal.SIGPIPE]
    numbers += [signal.SIGKILL, signal.SIGSTOP] if runtime == "runc" else []
    paths = ["/proc/1/mem", *(["/proc/1/fd/0", "/proc/1/fd/1"] if runtime == "runc" else [])]

    async def story(box):
        code = (
            "import os, signal\n"
            f"for number in {list(map(int, numbers))}:\n"
            "    try: os.kill(1, number)\n"
            "    except OSError: pass\n"
            f"for path in {paths}:\n"
            "    try: print('open', open(path, 'rb').read(1))\n"
            "    except OSError: pass"
        )
        finished = await box.run(code)
        assert (finished.outcome, finished.stdout) == ("ok", "")
        assert await box.value("1 + 1") == "2"

    in_box(story)


@pytest.mark.parametrize(
    "forged",
    [b"?", b"C\\xff\\xff\\xff\\xff", b"R\\0\\0\\0\\0", b"A\\0\\0\\0\\4\\0\\xff\\0\\0", b"w\\0\\0\\0\\0"],
)
def test_a_relay_that_breaks_the_rules_ends_its_session_with_a_label(runtime, forged, own_containers):
    """Under gVisor code can write into the relay's pipe: as good a liar as any."""
    if runtime == "runc":
        pytest.skip("code cannot reach the relay's pipe here")

    async def main():
        session = await sandbox.open_session(Policy(backend="docker", runtime=runtime))
        code = f"import os, time\nos.write(os.open('/proc/1/fd/1', os.O_WRONLY), b'{forged.decode()}' * 20)\ntime.sleep(20)"
        finished = [event async for event in session.execute(code, deadline_seconds=40)][-1]
        assert (finished.outcome, finished.state_lost) == ("violation", True), finished
        assert own_containers.ids() == []

    asyncio.run(main())


# -------------------------------------------------------------------- the deaths of others


def start_worker(runtime: str) -> tuple[subprocess.Popen, int]:
    """Another process with a session; return it and the session's pid."""
    code = (
        "import asyncio, sandbox, sys\n"
        "async def main():\n"
        f"    session = await sandbox.open_session(sandbox.Policy(backend='docker', runtime={runtime!r}))\n"
        "    print(session.pid, flush=True)\n"
        "    async for _ in session.execute('while True: pass', deadline_seconds=600): pass\n"
        "asyncio.run(main())"
    )
    worker = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    return worker, int(worker.stdout.readline())


def test_a_killed_worker_leaves_no_process_and_its_container_is_swept(runtime):
    worker, pid = start_worker(runtime)
    engine = engines.current()
    mine = f"{owners.LABEL}={worker.pid}:{owners._start_of(worker.pid)}"
    assert len(engine.containers(mine)) == 1
    assert owners.sweep(engine) == []

    worker.send_signal(signal.SIGKILL)
    worker.wait(10)

    assert wait_until(lambda: not lives(pid)), "the container outlived its worker"
    left = [found["Id"] for found in engine.containers(mine)]
    assert set(left) <= set(owners.sweep(engine))
    assert engine.containers(mine) == []


def test_an_orphan_that_still_runs_is_swept(runtime):
    worker, pid = start_worker(runtime)
    engine = engines.current()
    mine = f"{owners.LABEL}={worker.pid}:{owners._start_of(worker.pid)}"
    (found,) = engine.containers(mine)
    with engine.client() as client:
        client.pause(found["Id"])  # frozen, so that it cannot notice that its worker has gone
    worker.kill()
    worker.wait(10)
    assert lives(pid)

    removed = owners.sweep(engine)

    assert found["Id"] in removed
    assert wait_until(lambda: not lives(pid))


def test_containers_of_workers_that_cannot_be_seen_from_here_are_left_alone():
    own = owners.labels()

    assert not owners.is_orphan(own)
    assert not owners.is_orphan({**own, "custody.place": "pid:[1]", owners.LABEL: "999999:1"})
    assert owners.is_orphan({**own, owners.LABEL: f"{os.getpid()}:1"})
    assert owners.is_orphan({**own, "custody.boot": "another"})
    assert not owners.is_orphan({})
