"""What code leaves in its workspace, collected while it lives and after its end; and that mounts stay inside."""

import asyncio
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sandbox import Policy, SessionEnded, open_session
from tests.boxes import Box

IS_ROOT = os.geteuid() == 0


def test_artifacts_are_collected_while_the_session_lives(in_box, tmp_path):
    async def story(box):
        await box.run("import os; os.mkdir('out'); open('out/a.txt', 'w').write('kept')")

        collected = await box.session.artifacts(tmp_path / "first")

        assert [(a.path, a.file.read_text()) for a in collected.artifacts] == [("out/a.txt", "kept")]
        assert await box.value("os.listdir('out')") == "['a.txt']"

    in_box(story)


@pytest.mark.parametrize("end", ["kill", "crash"])
def test_artifacts_outlive_the_code_until_the_session_is_closed(tmp_path, end):
    async def main():
        session = await open_session(Policy())
        box = Box(session)
        await box.run("open('a.txt', 'w').write('kept')")
        if end == "kill":
            await session.kill()
        else:
            await box.run("import os; os._exit(1)")

        collected = await session.artifacts(tmp_path / "all")

        assert [a.file.read_text() for a in collected.artifacts] == ["kept"]
        await session.close()
        with pytest.raises(SessionEnded, match="closed"):
            await session.artifacts(tmp_path / "late")

    asyncio.run(main())


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_closed_session_leaves_no_descriptor_open():
    async def main():
        for _ in range(3):
            before = open_descriptors()
            session = await open_session(Policy())
            await session.close()
            after = open_descriptors()
        assert after == before

    asyncio.run(main())


SHARED = """
    import asyncio, os, sys
    sys.path.insert(0, {project!r})
    from sandbox.backends.namespaces import kernel, root
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("", "/", flags=kernel.MS_REC | 1 << 20)
    import sandbox
    before = set(open("/proc/self/mountinfo"))
    async def main():
        session = await sandbox.open_session(sandbox.Policy())
        during = set(open("/proc/self/mountinfo"))
        await session.close()
        return during
    assert asyncio.run(main()) <= before, "a mount of the sandbox came out"
    print([len(os.listdir(path)) > 0 for path in root.foreign_packages()])
"""


@pytest.mark.skipif(not IS_ROOT, reason="only root's mounts can propagate")
def test_no_mount_of_a_sandbox_comes_out_where_the_hosts_mounts_are_shared():
    """As on most machines with systemd: there a mount below a copy of a shared mount appears in the original too."""
    program = textwrap.dedent(SHARED).format(project=str(Path(__file__).parents[3]))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "False" not in done.stdout
