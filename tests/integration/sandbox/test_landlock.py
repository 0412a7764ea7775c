"""The degraded backend: what it claims holds by the system alone, as root and as an ordinary user, and nothing is left."""

import asyncio
import errno
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import sandbox
from sandbox import EvidenceUnreadable, Limits, Mount, Policy, SandboxUnavailable
from sandbox.backends.landlock import backend, confine, showing, workspaces
from sandbox.backends.namespaces import confine as steps
from sandbox.backends.namespaces import kernel
from sandbox.policy import REQUIRED_LAYERS
from tests.boxes import a_box
from tests.integration.sandbox.landlock_attempts import ATTEMPTS
from tests.ordinary_user import run_as_user

IS_ROOT = os.geteuid() == 0
PROJECT = str(Path(__file__).parents[3])
PROGRAM = str(Path(__file__).with_name("landlock_attempts.py"))


@pytest.fixture(autouse=True, scope="module")
def _landlock_works():
    report = sandbox.probe("landlock")
    if not report.usable:
        pytest.skip(f"no Landlock here: {'; '.join(report.advice)}")


def play(story, **policy):
    async def main():
        async with a_box(backend="landlock", language="strict", **policy) as box:
            return await story(box)

    return asyncio.run(main())


def status_lines(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/status").read_text().splitlines()


def workspace_of(box) -> Path:
    return box.session._guest.workspace


# -------------------------------------------------------------------- by the system alone


@pytest.fixture(scope="module", params=["this user", "an ordinary user"])
def attempts(request):
    """Everything that is tried, by unrestricted code, under the backend's own confinement."""
    if request.param == "this user":
        done = subprocess.run(
            [sys.executable, PROGRAM], capture_output=True, text=True, timeout=60, check=False
        )
    elif not IS_ROOT:
        pytest.skip("this user is an ordinary one")
    else:
        done = run_as_user(
            "-c", f"import runpy; runpy.run_path({PROGRAM!r}, run_name='__main__')", seconds=60
        )
    return json.loads(done.stdout or pytest.fail(done.stderr))


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_the_system_holds_without_the_language(attempts, attempt):
    expected = ATTEMPTS[attempt][1]

    assert attempts[attempt] == (errno.errorcode[expected] if expected else "works")
    assert attempts["uid"] != 0


def test_without_landlock_there_is_no_degraded_sandbox(monkeypatch, tmp_path):
    monkeypatch.setattr(kernel, "landlock_abi", lambda: 0)

    with pytest.raises(steps.LayerFailed, match="no Landlock") as caught:
        confine.make_rules(None, ())

    assert caught.value.layer == "landlock"


# -------------------------------------------------------------------- sessions


def test_the_layers_are_reported_and_hold_as_the_kernel_sees_them():
    async def story(box):
        assert {layer.partition(":")[0] for layer in box.session.layers} >= {
            *REQUIRED_LAYERS["landlock"],
            "degraded",
        }
        lines = status_lines(box.session._guest.init_pid)
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert {status[key].strip("0") for key in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {""}
        assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
        assert "0" not in status["Uid"].split()
        assert ("uid" in box.session.layers) == IS_ROOT

    play(story)


def test_evidence_is_read_where_it_lies_and_by_its_name(tmp_path):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        tree = Path(folder) / "tree"
        (tree / "sub").mkdir(parents=True)
        (tree / "sub" / "a.txt").write_text("deep ERROR\n")
        log = Path(folder) / "app.log"
        log.write_text("one\ntwo ERROR\n")

        async def story(box):
            assert await box.value("evidence.names()") == "['app.log', 'code/sub/a.txt']"
            assert await box.value("[h.citation for h in evidence.search('ERROR')]") == (
                "['app.log:2', 'code/sub/a.txt:1']"
            )
            assert await box.value("open('/evidence/code/sub/a.txt').read().strip()") == "'deep ERROR'"
            assert (await box.run("open('/evidence/app.log', 'w')")).error.type == "PermissionError"
            beside = f"open({str(log.parent / 'x')!r})"
            assert (await box.run(beside)).error.type == "PermissionError"

        mounts = (Mount(source=str(log), target="app.log"), Mount(source=str(tree), target="code"))
        play(story, evidence=mounts)


@pytest.mark.skipif(not IS_ROOT, reason="an ordinary user's sandbox reads what the user may read")
def test_evidence_that_the_sandbox_may_not_read_is_named(tmp_path):
    private = tmp_path / "private.log"
    private.write_text("x")
    private.chmod(0o600)

    with pytest.raises(EvidenceUnreadable, match=r"private\.log"):
        play(None, evidence=(Mount(source=str(private), target="p"),))


def test_cells_state_calls_threads_and_await_work():
    async def story(box):
        await box.run("import asyncio, sqlite3\nfrom concurrent.futures import ThreadPoolExecutor\nn = 20")
        assert await box.value("n + 1") == "21"
        assert await box.value("await asyncio.sleep(0, 'slept')") == "'slept'"
        assert await box.value("list(ThreadPoolExecutor(2).map(str, [1, 2]))") == "['1', '2']"
        assert await box.value("sqlite3.connect('t.db').execute('select 7').fetchone()") == "(7,)"
        assert await box.value("budget()", answer=lambda _: {"usd": 1}) == "<budget left: usd 1>"

    play(story, calls=frozenset({"budget"}))


def test_a_loop_is_interrupted_at_its_deadline_and_the_state_survives():
    async def story(box):
        await box.run("kept = 3")
        finished = await box.run("while True: pass", deadline=0.5)
        assert (finished.outcome, finished.state_lost) == ("timed_out", False)
        assert await box.value("kept") == "3"

    play(story)


def test_memory_is_bounded():
    async def story(box):
        assert (await box.run("x = 'a' * (1 << 29)")).error.type == "MemoryError"
        assert await box.value("1 + 1") == "2"

    play(story, limits=Limits(memory_bytes=256 << 20))


@pytest.mark.parametrize(
    ("code", "limits", "said"),
    [
        (
            "n = 0\nwhile True:\n    (workspace / str(n)).write_bytes(b'x' * 500_000)\n    n += 1\n    time.sleep(0.01)",
            {"workspace_bytes": 4 << 20},
            "bytes",
        ),
        (
            "n = 0\nwhile True:\n    (workspace / str(n)).touch()\n    n += 1\n    time.sleep(0.0005)",
            {"workspace_inodes": 200},
            "files",
        ),
    ],
)
def test_a_workspace_that_grows_too_large_ends_the_session_with_the_reason(code, limits, said):
    async def story(box):
        finished = await box.run(f"import time\n{code}")
        assert (finished.outcome, finished.state_lost) == ("crashed", True)
        assert f"the workspace held more than {next(iter(limits.values()))} {said}" in finished.detail

    play(story, limits=Limits(**limits))


def test_artifacts_can_be_had_until_the_session_is_closed_and_then_nothing_is_on_the_disk(tmp_path):
    async def story(box):
        await box.run("(workspace / 'out').mkdir()\n(workspace / 'out' / 'a.txt').write_text('made')")
        await box.session.kill()
        collected = await box.session.artifacts(tmp_path / "collected")
        assert [(a.path, a.file.read_text()) for a in collected.artifacts] == [("out/a.txt", "made")]
        return workspace_of(box)

    folder = play(story)

    assert not folder.exists()


def test_a_session_that_was_killed_and_never_closed_leaves_nothing_on_the_disk():
    async def main():
        session = await sandbox.open_session(Policy(backend="landlock", language="strict"))
        await session.kill()
        return session._guest.workspace

    folder = asyncio.run(main())
    gc.collect()

    assert not folder.exists()


def test_thousands_of_nested_directories_are_watched_and_removed():
    async def story(box):
        handle = os.open(workspace_of(box), os.O_RDONLY)
        for _ in range(4_000):
            os.mkdir("d", dir_fd=handle)
            deeper = os.open("d", os.O_RDONLY, dir_fd=handle)
            os.close(handle)
            handle = deeper
        os.close(handle)
        await asyncio.sleep(0.5)
        assert await box.value("'alive'") == "'alive'"
        return workspace_of(box)

    assert not play(story).exists()


def test_a_kill_leaves_nothing_and_is_quick():
    async def story(box):
        pid = box.session._guest.init_pid
        report = await box.session.kill()
        assert (report.survivors, report.duration_ms < 1_000) == ((), True)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    play(story)


def test_a_dead_zygote_is_replaced():
    async def story(box):
        assert await box.value("1") == "1"

    play(story)
    os.kill(backend.zygotes.current().pid, signal.SIGKILL)
    play(story)


def test_what_a_killed_worker_left_is_removed_and_its_sandbox_dies(tmp_path):
    program = f"""
import asyncio, os, sys
sys.path.insert(0, {PROJECT!r})
import sandbox
async def main():
    session = await sandbox.open_session(sandbox.Policy(backend="landlock", language="strict"))
    print(session._guest.init_pid, session._guest.workspace, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    worker = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    pid, folder = worker.stdout.readline().split()
    worker.kill()
    worker.wait()

    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not Path(f"/proc/{pid}").exists()
    left = workspaces.make()
    left.rmdir()
    assert not Path(folder).exists()


def test_two_sessions_do_not_see_each_other():
    async def story(box):
        async with a_box(backend="landlock", language="strict") as other:
            await other.run("(workspace / 'secret').write_text('s')")
            path = str(workspace_of(other) / "secret")
            assert (await box.run(f"open({path!r}).read()")).error.type == "PermissionError"
            assert await box.value(f"import os; os.path.exists({path!r})") == "False"

    play(story)


def test_a_layer_that_it_lacks_is_refused():
    with pytest.raises(SandboxUnavailable, match="'mount-ns'"):
        play(None, required_layers=frozenset({"mount-ns"}))


@pytest.mark.skipif(not IS_ROOT, reason="already an ordinary user: every other test shows it")
def test_an_ordinary_user_gets_one_without_any_namespace():
    done = run_as_user(
        "-c",
        f"""
import asyncio, sys
sys.path.insert(0, {PROJECT!r})
import sandbox
async def main():
    session = await sandbox.open_session(sandbox.Policy(backend="landlock", language="strict"))
    print(*session.layers)
    async for event in session.execute("open('a', 'w').write('x')\\nprint(open('a').read())", deadline_seconds=9):
        pass
    print(event.outcome, event.stdout.strip())
    print(await session.kill())
    await session.close()
    print(session._guest.workspace.exists())
asyncio.run(main())
""",
        seconds=60,
    )

    layers, outcome, report, exists = done.stdout.splitlines() or pytest.fail(done.stderr)
    assert {"degraded", "seccomp", "no-fork", "strict-language"} <= set(layers.split())
    assert "uid" not in layers.split()
    assert outcome == "ok x"
    assert "survivors=()" in report
    assert exists == "False"


# -------------------------------------------------------------------- evidence below a folder that is closed to others


@pytest.fixture
def closed(tmp_path):
    """Evidence that others may read, in a folder that they may not enter."""
    home = tmp_path / "home"
    (home / "kept" / "deep").mkdir(parents=True)
    (home / "kept" / "a.txt").write_text("one\n")
    (home / "kept" / "deep" / "b.txt").write_text("two\n")
    (home / "kept" / "secret.txt").write_text("hidden\n")
    (home / "kept" / "out").symlink_to("/etc/hostname")
    (home / "other.txt").write_text("not evidence\n")
    for path in (home / "kept", home / "kept" / "deep"):
        path.chmod(0o755)
    for path in (home / "kept" / "a.txt", home / "kept" / "deep" / "b.txt", home / "other.txt"):
        path.chmod(0o444)
    (home / "kept" / "secret.txt").chmod(0o600)
    home.chmod(0o700)
    return home


LOOK = "print(sorted(evidence.names()), evidence['docs/deep/b.txt'].text.strip())"


def left_over() -> set[str]:
    home = Path(tempfile.gettempdir()) / f"custody-landlock-{os.geteuid()}"
    return {path.name for path in home.iterdir() if path.name.startswith(f"{os.getpid()}-")}


@pytest.mark.skipif(not IS_ROOT, reason="an ordinary user's sandbox keeps the uid that the folder lets in")
def test_a_folder_above_evidence_that_only_root_may_enter_hides_nothing_that_others_may_read(closed):
    before = left_over()

    async def story(box):
        told = await box.value(LOOK)
        secret = await box.run("evidence['docs/secret.txt'].text")
        written = await box.run("open('/evidence/docs/a.txt', 'w')")
        return told, secret, written

    told, secret, written = play(story, evidence=(Mount(source=str(closed / "kept"), target="docs"),))

    assert "docs/deep/b.txt" in told
    assert "docs/out" not in told
    assert told.strip().endswith("two")
    assert "PermissionError" in str(secret)
    assert written.outcome == "error"
    assert (closed / "kept" / "a.txt").read_text() == "one\n"
    gc.collect()
    assert left_over() <= before


@pytest.mark.skipif(not IS_ROOT, reason="as above")
def test_across_file_systems_evidence_is_copied_and_too_much_of_it_is_refused(closed, monkeypatch):
    def elsewhere(*_, **__):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", elsewhere)
    mounts = (Mount(source=str(closed / "kept"), target="docs"),)

    async def story(box):
        return await box.value(LOOK)

    assert play(story, evidence=mounts).strip().endswith("two")
    monkeypatch.setattr(showing, "_MOST_COPIED", 5)
    with pytest.raises(EvidenceUnreadable, match="kept"):
        play(story, evidence=mounts)


@pytest.mark.skipif(not IS_ROOT, reason="as above")
def test_evidence_that_its_owner_closed_is_refused_by_its_own_name(closed):
    mounts = (Mount(source=str(closed / "kept" / "secret.txt"), target="secret.txt"),)

    async def story(box):
        return await box.value("1")

    with pytest.raises(EvidenceUnreadable, match=r"secret\.txt"):
        play(story, evidence=mounts)
