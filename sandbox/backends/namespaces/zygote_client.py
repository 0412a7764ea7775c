"""The worker's side of one zygote: start it, ask it for sandboxes. Blocking, thread-safe."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.advice import how_to_get
from sandbox.artifacts import Collected, copy_out
from sandbox.backends.namespaces import cgroups
from sandbox.backends.namespaces.plan import Plan
from sandbox.backends.port import Ending
from sandbox.ending import read_ending
from sandbox.errors import EvidenceUnreadable, SandboxUnavailable, SessionEnded
from sandbox.policy import ArtifactLimits

_START_SECONDS = 30.0
_SPAWN_SECONDS = 20.0
#: Zygotes of this process that run.
_LIVE: set[int] = set()
os.register_at_fork(after_in_child=_LIVE.clear)


def lifelines() -> tuple[int, ...]:
    """Processes of this one whose death ends every sandbox made by them: the kernel sees to it."""
    return tuple(_LIVE)


@dataclass
class Guest:
    """A confined guest as the host holds it: its pid 1, its runner, its wires."""

    name: str
    channel: socket.socket
    stdout: int
    stderr: int
    report: socket.socket
    layers: tuple[str, ...] = ()
    init_pid: int = 0
    init: int = -1
    runner: int = -1
    workspace: int = -1
    namespaces: tuple[int, ...] = ()
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def kill(self) -> None:
        """Kill pid 1: the kernel ends all others of its namespace before it is gone itself. Safe from any thread."""
        with self.lock:
            if self.init >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self.init, signal.SIGKILL)

    @property
    def gone(self) -> int:
        """The pidfd of pid 1: readable when it is gone, and therefore the whole namespace is empty."""
        return self.init

    def interrupt(self) -> None:
        with self.lock:
            if self.runner >= 0:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self.runner, signal.SIGINT)

    async def ending(self) -> Ending:
        """Hear the zygote's last word; clean up in place of one that was killed before it could."""
        ending = await read_ending(self.report)
        if ending.exit_code is None:
            cgroups.Group(cgroups.find_hierarchies(), self.name).remove_patiently()
        return ending

    def collect(self, into: Path, limits: ArtifactLimits) -> Collected:
        """Walk the workspace through a descriptor that pid 1 sent: it holds the file system beyond the guest's end."""
        with self.lock:
            if self.workspace < 0:
                raise SessionEnded("the session is closed and its workspace gone: collect artifacts before")
            directory = os.dup(self.workspace)
        try:
            return copy_out(directory, into, limits)
        finally:
            os.close(directory)

    def __del__(self) -> None:
        self.release()  # of a session that was killed and never closed

    def forget_namespaces(self) -> None:
        """Close the way in: nothing more is to be mounted in this guest."""
        with self.lock:
            held, self.namespaces = self.namespaces, ()
        for fd in held:
            os.close(fd)

    def release(self) -> None:
        """Close every descriptor. A late kill must not reach the next owner of a number."""
        self.channel.close()
        self.report.close()
        with self.lock:
            held = (self.stdout, self.stderr, self.init, self.runner, self.workspace, *self.namespaces)
            self.stdout = self.stderr = self.init = self.runner = self.workspace = -1
            self.namespaces = ()
        for fd in held:
            if fd >= 0:
                os.close(fd)


@dataclass
class Zygote:
    """One zygote process. Its keeper thread starts it and lives as long as it does: the kernel ties a child's
    death signal to the thread that made it, so a worker's passing thread must not be the one.
    """  # noqa: D205

    program: Path
    pid: int = 0
    failure: str = ""
    is_ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(_START_SECONDS)
        self._sending = threading.Lock()
        threading.Thread(target=self._keep, args=(theirs,), daemon=True, name="sandbox-zygote").start()
        answer = b""
        with contextlib.suppress(OSError):
            answer = self._control.recv(1 << 16)
        if answer == b"ready":
            return
        self._control.close()
        if answer:
            raise _failure(json.loads(answer))
        self.is_ended.wait(1.0)
        raise SandboxUnavailable(f"the zygote did not start: {self.failure or 'no answer'}", layer="zygote")

    def _keep(self, theirs: socket.socket) -> None:
        # No -I: it would ignore the hash seed. These switches and an environment of one variable say the same.
        switches = ["-S", "-s", "-P", "-X", "utf8"]
        with theirs:
            process = subprocess.Popen(
                [_interpreter(), *switches, str(self.program)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                # One arena: a second, for the reader thread, would cost each sandbox memory and speed up nothing.
                # No restartable sequences: the kernel would write to memory that pid 1 gives up.
                env={
                    "PYTHONHASHSEED": "0",
                    "MALLOC_ARENA_MAX": "1",
                    "GLIBC_TUNABLES": "glibc.pthread.rseq=0",
                },
                cwd="/",
                start_new_session=True,
            )
        self.pid = process.pid
        _LIVE.add(self.pid)
        _, complaint = process.communicate()
        _LIVE.discard(self.pid)
        self.failure = complaint.decode(errors="replace")[-2000:]
        self.is_ended.set()

    def spawn(self, plan: Plan) -> Guest:
        """Return a confined guest, or say which layer failed and leave nothing."""
        ours, theirs = socket.socketpair()
        report, their_report = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stdout, their_stdout = os.pipe()
        stderr, their_stderr = os.pipe()
        guest = Guest(name=plan.name, channel=ours, stdout=stdout, stderr=stderr, report=report)
        request = os.memfd_create("plan")
        os.write(request, plan.to_json())
        sent = (request, theirs.detach(), their_stdout, their_stderr, their_report.detach())
        try:
            with self._sending:
                socket.send_fds(self._control, [b"spawn " + plan.header()], list(sent))
        except OSError:
            guest.release()
            raise
        finally:
            for fd in sent:
                os.close(fd)
        return _complete(guest)

    def bring_in(self, guest: Guest, plan: Plan) -> None:
        """Mount a plan's evidence in a guest that is confined already and has run no code."""
        report, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = os.memfd_create("plan")
        with report, theirs:
            try:
                os.write(request, plan.to_json())
                with self._sending:
                    message = f"evidence {guest.init_pid}".encode()
                    handed = [request, theirs.fileno(), *guest.namespaces]
                    socket.send_fds(self._control, [message], handed)
            finally:
                os.close(request)
            theirs.close()
            report.settimeout(_SPAWN_SECONDS)
            answer = report.recv(1 << 16)
        if json.loads(answer or b"{}") != {"attached": True}:
            _note(guest, answer, [])

    def close(self) -> None:
        """Let the zygote end, and every sandbox with it."""
        self._control.close()


def _interpreter() -> str:
    """Return the interpreter below a virtual environment: its standard library is the one that gets mounted."""
    return str(getattr(sys, "_base_executable", None) or sys.executable)


def _complete(guest: Guest) -> Guest:
    """Read the reports of zygote, pid 1 and runner until all three are known."""
    guest.report.settimeout(_SPAWN_SECONDS)
    try:
        while not (guest.layers and guest.init >= 0 and guest.runner >= 0):
            text, descriptors, _, _ = socket.recv_fds(guest.report, 1 << 16, 8)
            _note(guest, text, descriptors)
    except BaseException as error:
        guest.kill()
        guest.release()
        if isinstance(error, TimeoutError):
            raise SandboxUnavailable("the sandbox did not come up in time", layer="zygote") from None
        raise
    return guest


def _failure(message: dict[str, str]) -> SandboxUnavailable:
    layer = message["failed"]
    words = f"the sandbox could not be made: {message['message']}. {how_to_get(layer)}"
    return SandboxUnavailable(words.strip(), layer=layer)


def _note(guest: Guest, text: bytes, descriptors: list[int]) -> None:
    if not text:
        raise ConnectionResetError("the zygote ended")
    match json.loads(text):
        case {"init": init}:
            guest.init_pid, (guest.init,) = init, descriptors
        case {"runner": _}:
            guest.runner, guest.workspace, *namespaces = descriptors
            guest.namespaces = tuple(namespaces)
        case {"layers": layers}:
            guest.layers = tuple(layers)
        case {"unreadable": source}:
            raise EvidenceUnreadable(
                f"evidence {source!r} cannot be read with the sandbox's uid, and its file system cannot map ids:"
                " make it readable for others, or copy it to a local file system"
            )
        case {"failed": _} as message:
            raise _failure(message)
        case message:
            raise SandboxUnavailable(f"the sandbox ended while it was made: {message!r}", layer="zygote")
