"""The forbidden things, tried from inside a real sandbox: each must fail, or the test does."""

import os
import platform
import socket
import time
from pathlib import Path

import pytest

from sandbox import EvidenceUnreadable, Limits, Mount, PolicyError, SandboxUnavailable, open_session
from sandbox.policy import REQUIRED_LAYERS, Policy
from tests.ordinary_user import run_as_user

IS_ROOT = os.geteuid() == 0


def test_the_layers_hold_as_the_kernel_sees_them(in_box):
    code = "dict(l.split(':\\t', 1) for l in open('/proc/self/status').read().splitlines() if ':\\t' in l)"

    async def story(box):
        status = eval(await box.value(code))

        assert {status[key].strip("0") for key in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {""}
        assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
        assert "0" not in status["Uid"].split()
        assert await box.value("import os; os.getgroups() in ([], [65534], [os.getgid()])") == "True"
        assert {layer.partition(":")[0] for layer in box.session.layers} >= REQUIRED_LAYERS["namespaces"]

    in_box(story)


@pytest.mark.requirement("N3-SEC-2")
def test_nothing_of_the_host_is_visible(in_box, tmp_path, monkeypatch):
    canary = tmp_path / "canary"
    canary.write_text("secret")
    monkeypatch.setenv("CANARY", "secret")

    async def story(box):
        assert await box.value("import os; sorted(os.environ)") == "['HOME', 'LANG', 'TMPDIR']"
        assert "CANARY" not in await box.value(
            "open('/proc/self/environ').read() if os.access('/proc/self/environ', 4) else ''"
        )
        assert await box.value(f"os.path.exists({str(canary)!r})") == "False"
        assert await box.value("[p for p in os.listdir('/proc') if p.isdigit()]") == "['1', '2']"
        for path in (
            "/etc",
            "/home",
            "/work",
            "/var",
            "/sys",
            "/bin",
            "/proc/sys",
            "/proc/meminfo",
            "/dev/shm",
        ):
            assert await box.value(f"os.path.exists({path!r})") == "False", path
        project = Path(__file__).parents[3]
        assert await box.value(f"os.path.exists({str(project)!r})") == "False"
        assert await box.value("sorted(os.listdir('/opt/sandbox'))") == "['guest']"
        assert (await box.run("import pytest")).error.type == "NotInThisSandbox"

    in_box(story)


def test_no_descriptor_but_its_own_wires_is_open(in_box):
    code = """
import os, stat
def kind(fd):
    try: return stat.filemode(os.fstat(fd).st_mode)[0]
    except OSError: return ''
''.join(kind(fd) for fd in range(256))
"""

    async def story(box):
        # null device, two pipes, the channel
        assert sorted(await box.value(code)) == sorted("'cpps'")

    in_box(story)


@pytest.mark.requirement("S3-BOUND-19", "N3-SEC-3")
def test_there_is_no_network(in_box):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        async def story(box):
            await box.run("import socket")
            for family in ("AF_INET", "AF_INET6", "AF_VSOCK", "AF_NETLINK", "AF_PACKET"):
                finished = await box.run(f"socket.socket(socket.{family}, socket.SOCK_STREAM)")
                assert finished.error.type == "OSError", (family, finished)
            assert (await box.run(f"socket.create_connection(('127.0.0.1', {port}), 2)")).outcome == "error"
            assert (
                await box.run("socket.socket(socket.AF_UNIX).connect('\\0name')")
            ).error.type == "PermissionError"

        in_box(story)


@pytest.mark.parametrize(
    "code",
    [
        "os.execv('/proc/self/exe', ['x'])",
        "import subprocess; subprocess.run(['/bin/sh'])",
        "open('/evidence/x', 'w')",
        "open('/opt/sandbox/guest/calls.py', 'a')",
        "open(json.__file__, 'a')",
        "os.setuid(0)",
        "os.mkdir('/new')",
        "os.kill(1, 9) or open('/workspace/still-here/x')",
        "os.chroot('/workspace')",
        "os.mknod('/workspace/d', 0o60600, os.makedev(8, 0))",
        "open('/proc/1/environ').read()",
        "open('/proc/self/mem', 'rb')",
        "open('/proc/1/mem', 'rb')",
        "__import__('resource').setrlimit(__import__('resource').RLIMIT_NOFILE, (9, 9))",
        "assert ctypes.CDLL(None, use_errno=True).unshare(0x10000000) == 0",
        "assert ctypes.CDLL(None, use_errno=True).ptrace(0, 0, 0, 0) == 0",
        "assert ctypes.CDLL(None).syscall(425, 1, 0) >= 0",
    ],
)
def test_a_forbidden_act_fails(in_box, code):
    async def story(box):
        await box.run("import os, json, ctypes")
        finished = await box.run(code)

        assert finished.outcome == "error", finished
        assert await box.value("1") == "1"

    in_box(story)


def test_a_foreign_architecture_kills_the_code_not_the_host(in_box):
    code = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex('b814000000cd80c3'))
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
"""

    async def story(box):
        finished = await box.run(code)

        assert (finished.outcome, finished.state_lost) == ("crashed", True), finished
        assert "SIGSYS" in finished.detail

    in_box(story)


def test_memory_is_limited_and_the_session_survives_a_memory_error(in_box):
    async def story(box):
        finished = await box.run("x = bytearray(300 << 20)")

        assert finished.error.type == "MemoryError"
        assert await box.value("1") == "1"

    in_box(story, limits=Limits(memory_bytes=200 << 20))


@pytest.mark.skipif(not IS_ROOT, reason="needs a control group")
def test_memory_of_many_processes_together_is_limited(in_box):
    code = """
import os, time
for _ in range(8):
    if os.fork() == 0:
        x = b'x' * (100 << 20)
        time.sleep(60)
os.wait()[1]
"""

    async def story(box):
        finished = await box.run(code)

        assert finished.stdout == "9\n" or "memory limit" in finished.detail, finished

    in_box(story, limits=Limits(memory_bytes=200 << 20))


def test_a_fork_bomb_is_bounded_and_dies_with_the_session(in_box):
    code = """
import os, time
count = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(600)
        count += 1
except OSError as error:
    print(count, type(error).__name__)
"""

    async def story(box):
        count, error = (await box.value(code)).split()

        assert int(count) <= 64
        assert error == "BlockingIOError"
        report = await box.session.kill()
        assert report.survivors == ()

    in_box(story)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("for i in range(400): open(f'/workspace/{i}', 'w').write('x' * 2**20)", "OSError"),
        ("for i in range(9000): open(f'/tmp/{i}', 'w')", "OSError"),
        ("open('/workspace/big', 'wb').truncate(1 << 40)", "OSError"),
        ("keep = [open('/dev/null') for _ in range(500)]", "OSError"),
    ],
)
def test_disk_inodes_and_descriptors_are_limited(in_box, code, error):
    async def story(box):
        finished = await box.run(code)

        assert finished.error.type == error, finished

    in_box(story, limits=Limits(workspace_bytes=64 << 20))


@pytest.mark.requirement("N3-SEC-1")
def test_evidence_is_readable_at_its_target_and_read_only(in_box, tmp_path):
    private = tmp_path / "private.log"
    private.write_text("only for its owner")
    private.chmod(0o600)
    if IS_ROOT:
        os.chown(private, 1234, 1234)
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True, mode=0o700)
    (tree / "deep" / "note").write_text("deep")
    (tree / "deep" / "note").chmod(0o400)
    mounts = (
        Mount(source=str(private), target="app.log"),
        Mount(source=str(tree), target="logs/tree"),
        Mount(source=str(Path(os.__file__).parent), target="stdlib"),
    )

    async def story(box):
        assert await box.value("open('/evidence/app.log').read()") == "'only for its owner'"
        assert await box.value("open('/evidence/logs/tree/deep/note').read()") == "'deep'"
        assert await box.value("import os; 'json' in os.listdir('/evidence/stdlib')") == "True"
        for code in (
            "open('/evidence/app.log', 'a')",
            "os.chmod('/evidence/app.log', 0o777)",
            "os.unlink('/evidence/app.log')",
            "os.rename('/evidence/logs/tree/deep', '/evidence/logs/tree/x')",
            "open('/evidence/logs/tree/new', 'w')",
        ):
            assert (await box.run(code)).error.type in {"OSError", "PermissionError"}, code

    in_box(story, evidence=mounts)
    assert private.read_text() == "only for its owner"


@pytest.mark.skipif(not IS_ROOT, reason="only root's uid differs from the sandbox's")
def test_evidence_that_nobody_may_read_is_named(tmp_path):
    closed = tmp_path / "closed"
    closed.write_text("")
    closed.chmod(0)

    with pytest.raises(EvidenceUnreadable, match="closed"):
        play(open_session(Policy(evidence=(Mount(source=str(closed), target="x"),))))


def test_a_gigabyte_is_mounted_as_fast_as_a_byte(tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_text("x")
    with large.open("wb") as file:
        file.truncate(1 << 30)

    async def seconds(path):
        started = time.perf_counter()
        session = await open_session(Policy(evidence=(Mount(source=str(path), target="it"),)))
        elapsed = time.perf_counter() - started
        await session.close()
        return elapsed

    fastest = {path: min(play(seconds(path)) for _ in range(5)) for path in (small, large)}

    assert fastest[large] < 3 * fastest[small] + 0.02


def test_declared_libraries_can_be_imported_and_not_changed(in_box, tmp_path):
    (tmp_path / "helper.py").write_text("value = 42")
    tmp_path.chmod(0o755)

    async def story(box):
        assert await box.value("import helper; helper.value") == "42"
        assert (await box.run("open(helper.__file__, 'a')")).outcome == "error"

    in_box(story, guest_paths=(str(tmp_path),))


def test_evidence_that_is_not_there_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(PolicyError, match="missing"):
        Policy(evidence=(Mount(source=str(tmp_path / "missing"), target="x"),))


def test_a_required_layer_that_is_missing_stops_the_session_from_opening():
    with pytest.raises(SandboxUnavailable, match="'gvisor'"):
        play(open_session(Policy(required_layers=REQUIRED_LAYERS["namespaces"] | {"gvisor"})))


def play(coroutine):
    import asyncio

    return asyncio.run(coroutine)


USER_PROGRAM = """
import asyncio
import sandbox
async def main():
    mount = sandbox.Mount(source={evidence!r}, target='e')
    session = await sandbox.open_session(sandbox.Policy(evidence=(mount,)))
    print(*session.layers)
    code = "import os\\nprint(os.getuid(), open('/evidence/e').read(), len(os.listdir('/proc')) > 0)\\nos.fork()"
    async for event in session.execute(code, deadline_seconds=9):
        pass
    print(event.stdout, event.error.type)
    print(await session.kill())
asyncio.run(main())
"""


@pytest.mark.skipif(not IS_ROOT, reason="already an ordinary user: every other test shows it")
def test_an_ordinary_user_gets_a_sandbox_through_a_user_namespace(tmp_path_factory):
    evidence = Path("/tmp") / f"custody-evidence-{os.getpid()}"
    evidence.write_text("shown")
    try:
        done = run_as_user("-c", USER_PROGRAM.format(evidence=str(evidence)), seconds=60)
    finally:
        evidence.unlink()

    layers, output, *rest = done.stdout.splitlines() or pytest.fail(done.stderr)
    assert {"user-ns", "seccomp", "no-fork", "uid"} <= set(layers.split())
    assert output.startswith("1000 shown")
    assert "BlockingIOError" in rest[0]
    assert "survivors=()" in rest[1]


def mapped_by(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/maps").read_text().splitlines()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="elsewhere pid 1 is an interpreter")
@pytest.mark.skipif(not IS_ROOT, reason="only root may look")
def test_pid_1_holds_nothing_but_the_loop_in_which_it_waits(in_box):
    async def story(box):
        await box.run("1")
        assert len([line for line in mapped_by(box.session.pid) if "[v" not in line]) == 2

    in_box(story)


def test_what_other_sessions_were_given_is_in_no_memory(in_box, tmp_path):
    """A zygote's children read all that it ever held: it must not hold what a session is about."""
    first, second = "customer-acme", "-payroll.log"
    evidence = tmp_path / (first + second)
    evidence.write_text("x")
    # The searcher never holds the name in one piece: it looks for the second half with the first, backwards, before it.
    code = f"""
import ctypes
found, half, before = [], {second!r}.encode(), {first[::-1]!r}.encode()
for line in open('/proc/self/maps'):
    span, rights = line.split()[:2]
    start, end = (int(part, 16) for part in span.split('-'))
    if rights.startswith('rw'):
        data = ctypes.string_at(start, end - start)
        place = data.find(half)
        while place >= 0:
            found.append(data[place - len(before):place][::-1] == before)
            place = data.find(half, place + 1)
len(found) > 0, any(found)
"""

    async def holder(box):
        assert await box.value("'acme' in open('/proc/self/mountinfo').read()") == "True"

    async def story(box):
        assert await box.value(code) == "(True, False)"

    in_box(holder, evidence=(Mount(source=str(evidence), target="log"),))
    in_box(story)
