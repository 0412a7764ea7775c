"""The wait loop of pid 1: its bytes are its listing, and it ends as the process it waits for does."""

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest

from sandbox.backends.namespaces import tiny_init

pytestmark = pytest.mark.skipif(tiny_init.platform.machine() != "x86_64", reason="written for x86-64")


@pytest.mark.skipif(not shutil.which("as") or not shutil.which("objcopy"), reason="needs an assembler")
def test_the_bytes_are_what_the_listing_says(tmp_path):
    source = [".intel_syntax noprefix"]
    for line in tiny_init._LISTING.strip().splitlines():
        words = re.split(r"\s{2,}", line[24:].strip())[0]
        source += [words.replace(": ", ":\n")]
    subprocess.run(["as", "-o", tmp_path / "o"], input="\n".join(source) + "\n", text=True, check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", tmp_path / "o", tmp_path / "bytes"], check=True)

    assert (tmp_path / "bytes").read_bytes() == tiny_init._CODE


def ending_of(child: str) -> int:
    """Fork what is given, become the loop that waits for it, and return the exit status of that loop."""
    program = f"""
        import os, signal, sys, time
        from sandbox.backends.namespaces import tiny_init
        kept = tiny_init.kernel_pages()
        assert kept is not None
        runner = os.fork()
        if runner == 0:
            time.sleep(0.05)
            {child}
        if os.fork() == 0:
            os._exit(9)  # an orphan's end is nobody's
        tiny_init.become(runner, kept=kept)
    """
    environment = {**os.environ, "GLIBC_TUNABLES": "glibc.pthread.rseq=0"}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=environment, timeout=30, check=False
    ).returncode


@pytest.mark.parametrize(
    ("child", "status"),
    [
        ("os._exit(0)", 0),
        ("os._exit(7)", 7),
        ("os._exit(255)", 255),
        ("os.kill(os.getpid(), 9)", 128 + signal.SIGKILL),
        ("os.kill(os.getpid(), signal.SIGXCPU)", 128 + signal.SIGXCPU),
    ],
)
def test_it_ends_as_the_runner_does(child, status):
    assert ending_of(child) == status


def test_where_the_kernel_would_write_to_given_up_memory_it_is_not_used(monkeypatch):
    monkeypatch.setattr(tiny_init.kernel, "has_restartable_sequences", lambda: True)

    assert tiny_init.kernel_pages() is None
