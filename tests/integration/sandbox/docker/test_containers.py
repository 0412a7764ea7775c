"""What cells can do in a container, and what they find there."""

import asyncio
import os
import re

import pytest

import sandbox
from sandbox import EvidenceUnreadable, Limits, Mount, Policy, SandboxUnavailable
from sandbox.policy import REQUIRED_LAYERS


def test_a_session_keeps_its_variables_and_files_from_cell_to_cell(in_box):
    async def story(box):
        await box.run("x = 20\n(workspace / 'kept').write_text('here')")

        assert await box.value("x + 1") == "21"
        assert await box.value("(workspace / 'kept').read_text()") == "'here'"

    in_box(story)


def test_every_required_layer_is_read_back(in_box, runtime):
    async def story(box):
        names = {layer.partition(":")[0] for layer in box.session.layers}

        assert REQUIRED_LAYERS["docker"] - {"cgroup"} <= names
        assert f"runtime:{runtime}" in box.session.layers
        assert any(re.fullmatch(r"cgroup-v[12]:memory,pids", layer) for layer in box.session.layers)
        assert "seccomp" in names

    in_box(story)


def test_a_layer_that_a_container_cannot_have_stops_the_session_and_leaves_nothing(runtime, own_containers):
    async def main():
        with pytest.raises(SandboxUnavailable, match="moat"):
            await sandbox.open_session(
                Policy(backend="docker", runtime=runtime, required_layers=frozenset({"moat"}))
            )

    asyncio.run(main())
    own_containers.wait_until_none()


def test_the_kernel_says_the_same_of_the_cell_s_process(in_box, runtime):
    async def story(box):
        status = await box.value("print(open('/proc/self/status').read())")
        found = dict(re.findall(r"^(\w+):\s*(.*)$", status, re.MULTILINE))

        assert {found[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd")} == {"0" * 16}
        assert found["Seccomp"] == "2"
        assert set(found["Uid"].split()) == set(found["Gid"].split())
        assert int(found["Uid"].split()[0]) >= 20_000
        if runtime == "runc":
            assert (found["NoNewPrivs"], found["Seccomp_filters"]) == ("1", "2")

    in_box(story)


def test_two_sessions_have_two_uids(runtime):
    async def main():
        async with asyncio.timeout(60):
            uids = []
            for _ in range(2):
                session = await sandbox.open_session(Policy(backend="docker", runtime=runtime))
                async for event in session.execute("import os; os.getuid()", deadline_seconds=20):
                    last = event
                uids.append(last.stdout)
                await session.kill()
            assert len(set(uids)) == 2

    asyncio.run(main())


@pytest.mark.parametrize("path", ["/", "/etc", "/usr/lib", "/opt/sandbox", "/evidence", "/dev"])
def test_only_workspace_and_tmp_can_be_written(in_box, path):
    async def story(box):
        finished = await box.run(f"open({path!r} + '/mine', 'w')")

        assert finished.outcome == "error"
        assert finished.error.type in {"PermissionError", "OSError"}
        assert await box.value("open('/tmp/mine', 'w').write('x')") == "1"

    in_box(story)


def test_nothing_of_the_host_or_of_the_project_s_other_parts_is_in_the_image(in_box):
    async def story(box):
        names = await box.value(
            "import os\n"
            "print([os.path.join(f, n) for f, _, ns in os.walk('/opt') for n in ns if n.endswith('.py')])"
        )
        assert "sandbox/guest/runner.py" in names
        for foreign in ("controlplane", "rlm_worker", "session.py", "engine.py", "pump.py"):
            assert foreign not in names
        assert await box.value("import sys; sorted(n for n in sys.modules if n.startswith('docker'))") == "[]"

    in_box(story)


def test_no_variable_and_no_name_of_the_host_reaches_a_cell(in_box, monkeypatch):
    monkeypatch.setenv("CUSTODY_CANARY", "sing")

    async def story(box):
        assert await box.value("import os; sorted(os.environ)") == "['HOME', 'LANG', 'TMPDIR']"
        seen = await box.value(
            "import pathlib\n"
            "for p in ('/proc/self/environ', '/proc/1/environ', '/etc/resolv.conf', '/etc/hosts', '/proc/version'):\n"
            "    try: print(pathlib.Path(p).read_text())\n"
            "    except OSError: pass"
        )
        assert "sing" not in seen
        assert os.uname().nodename not in seen.split()

    in_box(story)


def test_no_network_can_be_reached(in_box):
    async def story(box):
        for family in ("AF_INET", "AF_INET6", "AF_NETLINK", "AF_VSOCK", "AF_PACKET"):
            finished = await box.run(f"import socket; socket.socket(socket.{family}, socket.SOCK_DGRAM)")
            assert finished.error.type in {"OSError", "PermissionError"}, family
        finished = await box.run("socket.socket(socket.AF_UNIX).connect('\\0any')")
        assert finished.outcome == "error"
        assert await box.value("print(open('/proc/self/net/dev').read().count(':'))") in {"0", "1"}

    in_box(story)


@pytest.mark.parametrize(
    "code", ["getattr(os, 'ex' + 'ecv')('/usr/bin/python3', ['x'])", "os.setuid(0)", "os.chroot('/tmp')"]
)
def test_dangerous_calls_are_refused_by_name(in_box, code):
    async def story(box):
        finished = await box.run(f"import os; {code}")
        assert finished.error.type == "PermissionError", finished

    in_box(story)


def test_evidence_is_readable_and_cannot_be_changed(in_box, tmp_path):
    log = tmp_path / "app.log"
    log.write_text("one\ntwo\n")
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep" / "note.txt").write_text("below")
    evidence = (Mount(source=str(log), target="logs/app.log"), Mount(source=str(tree), target="tree"))

    async def story(box):
        assert await box.value("evidence.names()") == "['logs/app.log', 'tree/deep/note.txt']"
        assert await box.value("open('/evidence/logs/app.log').read()") == "'one\\ntwo\\n'"
        for code in ("open('/evidence/logs/app.log', 'w')", "open('/evidence/tree/new', 'w')"):
            assert (await box.run(code)).outcome == "error"

    in_box(story, evidence=evidence)
    assert log.read_text() == "one\ntwo\n"


def test_evidence_that_only_its_owner_may_read_is_named(runtime, tmp_path, own_containers):
    private = tmp_path / "private.txt"
    private.write_text("secret")
    private.chmod(0o600)
    policy = Policy(backend="docker", runtime=runtime, evidence=(Mount(source=str(private), target="p"),))

    with pytest.raises(EvidenceUnreadable, match=re.escape(str(private))):
        asyncio.run(sandbox.open_session(policy))
    own_containers.wait_until_none()


def test_declared_libraries_can_be_imported_and_not_changed(in_box, tmp_path):
    (tmp_path / "lent.py").write_text("ANSWER = 42\n")
    tmp_path.chmod(0o755)

    async def story(box):
        assert await box.value("import lent; lent.ANSWER") == "42"
        assert (await box.run("open(lent.__file__, 'w')")).outcome == "error"

    in_box(story, guest_paths=(str(tmp_path),))


def test_host_calls_are_answered_and_undeclared_ones_refused(in_box):
    async def story(box):
        call = "from sandbox.guest.calls import host_call\n"
        assert await box.value(call + "host_call('echo', {'a': 1})") == "{'a': 1}"
        finished = await box.run(call + "host_call('other', {})")
        assert finished.error.type == "HostCallError"
        assert [found.name for found in box.calls] == ["echo"]

    in_box(story, calls=frozenset({"echo"}))


def test_large_frames_cross_in_both_directions(in_box):
    async def story(box):
        code = (
            "from sandbox.guest.calls import host_call\nlen(host_call('echo', {'a': 'x' * 9_000_000})['a'])"
        )
        assert await box.value(code) == "9000000"

    in_box(story, calls=frozenset({"echo"}))


def test_output_is_whole_when_the_cell_ends_and_capped_at_its_limit(in_box):
    async def story(box):
        finished = await box.run("import sys\nprint('a' * 700_000)\nprint('b' * 10, file=sys.stderr)")
        assert (finished.stdout_bytes, finished.stderr) == (700_001, "b" * 10 + "\n")
        assert len(finished.stdout) == 100_000

        await asyncio.sleep(0.2)
        finished = await box.run("import os\nfor _ in range(100): os.write(1, b'x' * 1_000_000)", deadline=60)
        assert (finished.stdout_bytes, len(finished.stdout)) == (100_000_000, 100_000)

    in_box(story, limits=Limits(output_bytes=100_000))


def test_a_path_with_odd_characters_is_shown_as_evidence(in_box, tmp_path):
    odd = tmp_path / "a b:c,d=é.txt"
    odd.write_text("odd")

    async def story(box):
        assert await box.value("[d.text for d in evidence.values()]") == "['odd']"

    in_box(story, evidence=(Mount(source=str(odd), target="a b:c,d=é.txt"),))


def test_the_image_holds_the_same_standard_library(in_box):
    async def story(box):
        modules = (
            "ssl, sqlite3, ctypes, decimal, lzma, bz2, zlib, hashlib, zoneinfo, unicodedata, multiprocessing"
        )
        assert await box.value(f"import {modules}, platform\nprint(platform.python_version())") == (
            ".".join(map(str, __import__("sys").version_info[:3]))
        )

    in_box(story)


def test_a_session_without_an_engine_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")

    with pytest.raises(SandboxUnavailable, match="start dockerd") as caught:
        asyncio.run(sandbox.open_session(Policy(backend="docker")))
    assert caught.value.layer == "docker"


def test_an_engine_on_another_machine_is_refused(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")

    with pytest.raises(SandboxUnavailable, match="on this machine"):
        asyncio.run(sandbox.open_session(Policy(backend="docker")))


def test_the_strict_language_holds_in_a_container(in_box):
    async def story(box):
        assert "strict-language" in box.session.layers
        assert await box.value("d = {}\nd['a'] = 1\nd['a'] += 1\nprint(d)") == "{'a': 2}"
        finished = await box.run("().__class__.__base__.__subclasses__()")
        assert finished.outcome == "error"

    in_box(story, language="strict")
