"""The engine goes away under its containers: nothing hangs, nothing is left, and it is said. Needs an engine of its own."""

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

import sandbox
from sandbox import Policy, SandboxUnavailable
from sandbox.backends.docker import engine as engines
from sandbox.backends.docker import owners

ENGINE = Path(__file__).parents[4] / ".ci" / "engine"


def engine_command(order: str, directory: str) -> str:
    result = subprocess.run(
        [str(ENGINE), order],
        env={**os.environ, "CUSTODY_ENGINE_DIR": directory},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.fixture
def breakable(runtime, monkeypatch):
    """An engine that a test may break: its directory."""
    if os.geteuid() != 0:
        pytest.skip("only root can start an engine of its own")
    with tempfile.TemporaryDirectory(prefix="custody-", dir="/tmp", ignore_cleanup_errors=True) as directory:
        monkeypatch.setenv("DOCKER_HOST", engine_command("start", directory))
        yield directory
        engine_command("stop", directory)
    engines.forget()


def engine_pid(directory: str) -> int:
    return int(Path(directory, "pid").read_text())


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_engine_that_dies_takes_no_session_into_the_unknown(runtime, breakable):
    async def main():
        session = await sandbox.open_session(Policy(backend="docker", runtime=runtime))
        cell = session.execute("print('up', flush=True)\nwhile True: pass", deadline_seconds=60)
        await anext(cell)
        os.kill(engine_pid(breakable), signal.SIGKILL)

        finished = [event async for event in cell][-1]

        assert (finished.outcome, finished.state_lost) == ("crashed", True)
        assert not lives(session.pid)
        assert (await session.kill()).survivors == ()
        with pytest.raises(SandboxUnavailable, match="start dockerd"):
            await sandbox.open_session(Policy(backend="docker", runtime=runtime))

    asyncio.run(asyncio.wait_for(main(), 60))


def test_an_engine_that_hangs_cannot_hold_up_a_kill(runtime, breakable):
    async def main():
        session = await sandbox.open_session(Policy(backend="docker", runtime=runtime))
        pid, engine = session.pid, engine_pid(breakable)
        os.kill(engine, signal.SIGSTOP)
        try:
            began = time.monotonic()
            report = await session.kill()

            assert time.monotonic() - began < 10
            assert not lives(pid)
            assert report.survivors == ()
        finally:
            os.kill(engine, signal.SIGCONT)
        # What the engine could not be told to remove goes when it answers again.
        again = await sandbox.open_session(Policy(backend="docker", runtime=runtime))
        mine = f"{owners.LABEL}={owners.labels()[owners.LABEL]}"
        assert len(engines.current().containers(mine)) == 1
        await again.kill()

    asyncio.run(asyncio.wait_for(main(), 90))


def test_a_restarted_engine_is_used_again(runtime, breakable):
    async def a_session():
        session = await sandbox.open_session(Policy(backend="docker", runtime=runtime))
        async for event in session.execute("1 + 1", deadline_seconds=30):
            last = event
        await session.close()
        return last.stdout

    assert asyncio.run(a_session()) == "2\n"
    old = engine_pid(breakable)
    os.kill(old, signal.SIGTERM)
    while lives(old):
        time.sleep(0.05)
    engine_command("start", breakable)

    assert asyncio.run(a_session()) == "2\n"
