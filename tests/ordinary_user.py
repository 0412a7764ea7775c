"""A child process that gives up root: what an ordinary user gets can be seen on a machine where tests run as root."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
_PROGRAM = """
    import os, sys
    from pathlib import Path
    sys.path.insert(0, {project!r})
    from sandbox.backends.namespaces import kernel
    closed = [p for p in reversed(Path({prefix!r}).parents) if not p.stat().st_mode & 1]
    if closed:
        tree = kernel.clone_tree({prefix!r})
        kernel.unshare(kernel.CLONE_NEWNS)
        kernel.mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
        kernel.mount("tmpfs", str(closed[0]), kind="tmpfs", data="mode=755")
        Path({prefix!r}).mkdir(parents=True)
        kernel.attach_tree(tree, {prefix!r})
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    os.chdir({project!r})
    os.environ["PYTHONPATH"] = {project!r} + ":" + {libraries!r}
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def run_as_user(*arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run this interpreter with arguments as nobody, in the project's folder."""
    if any(not parent.stat().st_mode & 1 for parent in PROJECT.parents):
        pytest.skip("the project is below a directory that other users cannot enter")
    libraries = next((path for path in sys.path if path.endswith("site-packages")), "")
    text = textwrap.dedent(_PROGRAM).format(project=str(PROJECT), prefix=sys.base_prefix, libraries=libraries)
    return subprocess.run(
        [sys.executable, "-c", text, *arguments], capture_output=True, text=True, timeout=seconds, check=False
    )
