"""Sandboxes kept ready: handed out once, with their own evidence, replaced, and gone when nobody wants them."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import sandbox
from sandbox import EvidenceUnreadable, Limits, Mount, Policy, PolicyError, SandboxUnavailable, open_session
from sandbox.backends.namespaces import backend
from sandbox.planning import plan_for
from sandbox.policy import REQUIRED_LAYERS
from tests.boxes import Box
from tests.ordinary_user import run_as_user

from .test_endings import namespace_of, processes_in, wait_until

IS_ROOT = os.geteuid() == 0


def ready(policy: Policy) -> list[int]:
    """The pids of the sandboxes that stand ready for this policy."""
    return [guest.init_pid for guest in backend.pool()._ready.get(plan_for(policy).shape, [])]


@pytest.fixture
def pooled():
    """Two sandboxes ready, of a shape that no other test uses."""
    policy = Policy(limits=Limits(open_files=200))
    sandbox.warm(policy, size=2)
    assert wait_until(lambda: len(ready(policy)) == 2)
    yield policy
    sandbox.warm(policy, size=0)
    assert wait_until(lambda: ready(policy) == [])


def like(policy: Policy, **changes) -> Policy:
    return Policy(limits=policy.limits, **changes)


def test_a_session_takes_a_ready_sandbox_and_another_takes_its_place(pooled):
    async def main():
        before = ready(pooled)
        session = await open_session(like(pooled, seed=7, calls=frozenset({"echo"})))
        box = Box(session)

        assert session.pid in before
        assert await box.value("import random; random.random()") == repr(random.Random(7).random())
        assert (await box.run("echo(x=1)")).outcome == "ok"
        assert await asyncio.to_thread(wait_until, lambda: len(ready(pooled)) == 2)
        assert session.pid not in ready(pooled)
        await session.close()

    asyncio.run(main())


def test_no_sandbox_is_handed_out_twice(pooled):
    async def main():
        sessions = await asyncio.gather(*(open_session(pooled) for _ in range(8)))
        values = [
            await Box(session).value("seen = globals().get('seen', 0) + 1; seen") for session in sessions
        ]

        assert len({session.pid for session in sessions}) == 8
        assert set(values) == {"1"}
        await asyncio.gather(*(session.close() for session in sessions))

    asyncio.run(main())


def test_a_policy_of_another_shape_gets_a_sandbox_of_its_own(pooled):
    async def main():
        before = ready(pooled)
        session = await open_session(Policy(limits=Limits(open_files=201)))

        assert session.pid not in before
        assert ready(pooled) == before
        await session.close()

    asyncio.run(main())


def test_evidence_comes_late_and_is_as_readable_and_as_closed_as_ever(pooled, tmp_path):
    private = tmp_path / "private.log"
    private.write_text("only for its owner")
    private.chmod(0o600)
    if IS_ROOT:
        os.chown(private, 1234, 1234)
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True, mode=0o700)
    (tree / "deep" / "note").write_text("deep")
    mounts = (Mount(source=str(private), target="app.log"), Mount(source=str(tree), target="logs/tree"))

    async def main():
        before = ready(pooled)
        session = await open_session(like(pooled, evidence=mounts))
        box = Box(session)
        assert session.pid in before
        assert await box.value("open('/evidence/app.log').read()") == "'only for its owner'"
        assert await box.value("sorted(evidence)") == "['app.log', 'logs/tree/deep/note']"
        for code in (
            "open('/evidence/app.log', 'a')",
            "__import__('os').unlink('/evidence/app.log')",
            "open('/evidence/new', 'w')",
            "open('/evidence/logs/tree/new', 'w')",
        ):
            assert (await box.run(code)).error.type in {"OSError", "PermissionError"}, code
        other = Box(await open_session(pooled))
        assert await other.value("list(evidence)") == "[]"
        await session.close()
        await other.session.close()

    asyncio.run(main())
    assert private.read_text() == "only for its owner"


@pytest.mark.skipif(not IS_ROOT, reason="only root's uid differs from the sandbox's")
def test_late_evidence_that_nobody_may_read_is_named_and_its_sandbox_thrown_away(pooled, tmp_path):
    closed = tmp_path / "closed"
    closed.write_text("")
    closed.chmod(0)
    namespaces = [namespace_of(pid) for pid in ready(pooled)]

    with pytest.raises(EvidenceUnreadable, match="closed"):
        asyncio.run(open_session(like(pooled, evidence=(Mount(source=str(closed), target="x"),))))

    assert wait_until(lambda: any(not processes_in(namespace) for namespace in namespaces))


def test_where_evidence_cannot_come_late_a_new_sandbox_is_made_with_it(pooled, tmp_path, monkeypatch):
    (tmp_path / "a.log").write_text("here")
    mounts = (Mount(source=str(tmp_path / "a.log"), target="a.log"),)

    def refuse(*_):
        raise SandboxUnavailable("not here", layer="late-evidence")

    monkeypatch.setattr(backend.zygotes, "bring_in", refuse)

    async def main():
        before = ready(pooled)
        session = await open_session(like(pooled, evidence=mounts))
        assert session.pid not in before
        assert await Box(session).value("evidence['a.log'].text") == "'here'"
        await session.close()

    asyncio.run(main())


def test_a_dead_sandbox_is_replaced_and_never_handed_out(pooled):
    async def main():
        dead = ready(pooled)
        namespaces = [namespace_of(pid) for pid in dead]
        for pid in dead:
            os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not any(processes_in(namespace) for namespace in namespaces))
        session = await open_session(pooled)

        assert session.pid not in dead
        assert await Box(session).value("1") == "1"
        assert await asyncio.to_thread(wait_until, lambda: len(set(ready(pooled)) - set(dead)) == 2)
        await session.close()

    asyncio.run(main())


def test_the_pool_survives_its_zygote(pooled):
    before = ready(pooled)
    os.kill(backend.zygotes.current().pid, signal.SIGKILL)

    assert wait_until(lambda: len(set(ready(pooled)) - set(before)) == 2)


def test_the_layers_of_a_ready_sandbox_are_checked_like_any_others(pooled):
    with pytest.raises(SandboxUnavailable, match="'gvisor'"):
        asyncio.run(open_session(like(pooled, required_layers=REQUIRED_LAYERS["namespaces"] | {"gvisor"})))


def test_a_pool_nobody_wants_is_drained(pooled):
    namespaces = [namespace_of(pid) for pid in ready(pooled)]
    sandbox.warm(pooled, size=0)

    assert wait_until(lambda: not any(processes_in(namespace) for namespace in namespaces))


def test_a_backend_without_a_pool_says_so():
    with pytest.raises(PolicyError, match="keeps no sandboxes ready"):
        sandbox.warm(Policy(backend="docker"), size=1)


FORKING = """
import asyncio, os, sys, time
import sandbox
from sandbox.backends.namespaces import backend
policy = sandbox.Policy()
async def pid():
    session = await sandbox.open_session(policy)
    async for event in session.execute("1", deadline_seconds=9): pass
    assert event.outcome == "ok"
    found = session.pid
    await session.close()
    return found
sandbox.warm(policy, size=1)
while not backend.pool().ready(next(iter(backend.pool()._sizes), None)): time.sleep(0.01)
(mine,) = [g.init_pid for shelf in backend.pool()._ready.values() for g in shelf]
child = os.fork()
if child == 0:
    os._exit(asyncio.run(pid()) == mine)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), asyncio.run(pid()) == mine)
"""


def test_a_forked_worker_does_not_inherit_the_pool_and_exit_leaves_nothing():
    done = subprocess.run(
        [sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.stdout.split() == ["0", "True"], done.stderr


USER_PROGRAM = """
import asyncio, time
import sandbox
from sandbox.backends.namespaces import backend
policy = sandbox.Policy()
sandbox.warm(policy, size=1)
while not any(backend.pool()._ready.values()): time.sleep(0.01)
(ready,) = [g.init_pid for shelf in backend.pool()._ready.values() for g in shelf]
async def main():
    mount = sandbox.Mount(source={evidence!r}, target='e')
    session = await sandbox.open_session(sandbox.Policy(evidence=(mount,)))
    async for event in session.execute("print(open('/evidence/e').read())", deadline_seconds=9):
        pass
    print(session.pid == ready, event.stdout)
    await session.close()
asyncio.run(main())
"""


@pytest.mark.skipif(not IS_ROOT, reason="already an ordinary user: every other test shows it")
def test_an_ordinary_users_pool_gets_late_evidence_too():
    evidence = Path("/tmp") / f"custody-pool-evidence-{os.getpid()}-{time.time_ns()}"
    evidence.write_text("shown")
    try:
        done = run_as_user("-c", USER_PROGRAM.format(evidence=str(evidence)), seconds=60)
    finally:
        evidence.unlink()

    assert done.stdout.split() == ["True", "shown"], done.stderr
