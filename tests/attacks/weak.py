"""A guest that contains nothing: the same runner in a plain child process, against which every detector must fire.

It gives up root first, and every attack is bounded, so that what gets through here does no harm.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from sandbox import Collected, Policy, artifacts
from sandbox.backends.port import Ending
from sandbox.policy import ArtifactLimits
from sandbox.session import Session, session_over

PROJECT = Path(__file__).parents[2]

_PROGRAM = """
import sys, types, os
package = types.ModuleType('sandbox'); package.__path__ = [sys.argv[1] + '/sandbox']; sys.modules['sandbox'] = package
import asyncio, base64, ctypes, fcntl, gc, gzip, hashlib, http.client, importlib.util, json, linecache, mmap, multiprocessing
import resource, select, shutil, signal, socket, sqlite3, stat, struct, subprocess, threading, urllib.request, zipimport
import concurrent.futures, traceback, inspect, codecs, encodings.idna, tempfile, multiprocessing.popen_fork, glob, pathlib
import sandbox.guest.names, sandbox.guest.runner as runner, sandbox.guest.language
kept_by_a_careless_fork = [os.environ.get('HEAP_SECRET', '')]
if os.geteuid() == 0:
    os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)
os.chdir(sys.argv[2])
runner.prepare(runner.Surroundings(frame_bytes=int(sys.argv[5]), frame_depth=64, calls_in_flight=int(sys.argv[4]),
    evidence_root=sys.argv[3], workspace=sys.argv[2], guest_root=sys.argv[1] + '/sandbox', library_paths=()), int(sys.argv[6])).serve()
"""


class WeakGuest:
    """A process with the worker's environment, files, network and a workspace on the host's disk."""

    layers = ("none",)

    def __init__(self, policy: Policy) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="weak-"))
        self._home.chmod(0o755)
        workspace, evidence = self._home / "workspace", self._home / "evidence"
        for directory in (workspace, evidence):
            directory.mkdir()
            directory.chmod(0o777)
        for mount in policy.evidence:
            (evidence / mount.target).symlink_to(mount.source)
        self.channel, theirs = socket.socketpair()
        self.stdout, their_stdout = os.pipe()
        self.stderr, their_stderr = os.pipe()
        arguments = (
            PROJECT,
            workspace,
            evidence,
            policy.limits.calls_in_flight,
            policy.limits.frame_bytes,
            theirs.fileno(),
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=their_stdout,
            stderr=their_stderr,
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        os.close(their_stdout)
        os.close(their_stderr)
        self.init_pid = self._process.pid
        self.gone = os.pidfd_open(self.init_pid)

    def interrupt(self) -> None:
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """Kill the one process that is known, as careless sandboxes do."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def ending(self) -> Ending:
        code = self._process.wait(5)
        return Ending(exit_code=code if code >= 0 else 128 - code)

    def collect(self, into: Path, limits: ArtifactLimits) -> Collected:
        directory = os.open(self._home / "workspace", os.O_RDONLY)
        try:
            return artifacts.copy_out(directory, into, limits)
        finally:
            os.close(directory)

    def release(self) -> None:
        self.channel.close()
        for name in ("stdout", "stderr", "gone"):
            if getattr(self, name) >= 0:
                os.close(getattr(self, name))
                setattr(self, name, -1)
        shutil.rmtree(self._home, ignore_errors=True)


async def open_weak(policy: Policy) -> Session:
    return await session_over(policy, WeakGuest(policy))
