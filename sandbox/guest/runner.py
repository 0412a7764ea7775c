"""The process inside: reads frames, runs cells one after the other, sends what they ask and how they end."""

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from sandbox.guest import calls, frames, language
from sandbox.guest.cells import Console
from sandbox.guest.fetch import Web
from sandbox.guest.frames import JsonObject, JsonValue

_READER_STACK = 512 << 10  # counts against the data limit; the reader needs little
_LOOKS = 100


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the runner is told about its sandbox."""

    frame_bytes: int
    frame_depth: int
    calls_in_flight: int
    # The folder that holds all evidence, or where each piece lies.
    evidence_root: str | Mapping[str, str]
    workspace: str
    guest_root: str
    library_paths: tuple[str, ...]
    temporary: str = "/tmp"  # noqa: S108 - the sandbox's own
    language: str = "open"
    # Where RestrictedPython lies, for the strict language.
    language_paths: tuple[str, ...] = ()
    # Whether all processes that can be signalled from here are the session's: those of a pid namespace of its own.
    has_own_processes: bool = False


class Channel:
    """The guest's end of the socket. Sending is atomic, also against an interrupt that arrives in the middle."""

    def __init__(self, link: socket.socket, *, frame_bytes: int, frame_depth: int) -> None:
        self._link = link
        self._frame_bytes = frame_bytes
        self._frame_depth = frame_depth
        self._lock = threading.Lock()
        self.sender: int | None = None

    def send(self, frame: JsonObject) -> None:
        data = frames.encode(frame, max_bytes=self._frame_bytes)
        with self._lock:
            self.sender = threading.get_ident()
            try:
                self._link.sendall(data)
            finally:
                self.sender = None

    def receive(self) -> JsonObject:
        header = self._read(frames.HEADER.size)
        body = self._read(frames.body_length(header, max_bytes=self._frame_bytes))
        return frames.decode(body, max_depth=self._frame_depth)

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self._link.recv(min(count - len(data), 1 << 20))
            if not chunk:
                raise EOFError
            data += chunk
        return bytes(data)


class Runner:
    def __init__(
        self, channel: Channel, console: Console, *, calls_in_flight: int, has_own_processes: bool
    ) -> None:
        self._channel = channel
        self._has_own_processes = has_own_processes
        self._console = console
        self._switchboard = calls.Switchboard(self._send_call, in_flight=calls_in_flight)
        calls.connect(self._switchboard)
        self._cells: queue.SimpleQueue[JsonObject] = queue.SimpleQueue()
        self._pid = os.getpid()
        self._interruptible = False
        self._is_interrupted = False
        self._deferred = False

    def serve(self) -> None:
        """Run cells for ever: the end comes from the host."""
        signal.signal(signal.SIGINT, self._on_interrupt)
        usual = threading.stack_size(_READER_STACK)
        threading.Thread(target=self._read_frames, daemon=True, name="channel").start()
        threading.stack_size(usual)
        while True:
            frame = self._cells.get()
            if frame["t"] == "begin":
                self._begin(frame)
            else:
                self._run(frame)

    def _on_interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        if not self._interruptible:
            return
        self._is_interrupted = True
        if self._channel.sender == threading.main_thread().ident:
            self._deferred = True  # half a frame on the channel would end the session
            return
        raise KeyboardInterrupt

    def _send_call(self, frame: JsonObject) -> None:
        self._send_clock(frame["cell"], self._console.clock.take())
        self._channel.send(frame)
        if self._deferred and threading.current_thread() is threading.main_thread():
            self._deferred = False
            raise KeyboardInterrupt

    def _send_clock(self, cell: JsonValue, read: list[int]) -> None:
        """What the cell read goes ahead of what may follow from it."""
        if read:
            self._channel.send({"t": "clock", "cell": cell, "read": [*read]})

    def _read_frames(self) -> None:
        """Route answers to those who wait and cells to the main thread; without a host there is nothing left to do."""
        try:
            while True:
                self._route(self._channel.receive())
        finally:
            os._exit(0)

    def _route(self, frame: JsonObject) -> None:
        call_id = frame.get("id")
        match frame.get("t"):
            case "begin" | "run":
                self._cells.put(frame)
            case "answer" if isinstance(call_id, int):
                self._switchboard.settle(call_id, value=frame.get("value"))
            case "refuse" if isinstance(call_id, int):
                kind = calls.REFUSALS.get(str(frame.get("error")), calls.HostCallError)
                refusal = kind(str(frame.get("message")), detail=frame.get("detail"))
                self._switchboard.settle(call_id, refusal=refusal)
            case "close":
                os._exit(0)
            case _:
                pass

    def _begin(self, frame: JsonObject) -> None:
        seed, tools = frame["seed"], frame["tools"]
        assert isinstance(seed, int)
        assert isinstance(tools, list)
        self._console.begin(seed=seed, tools=[str(name) for name in tools])

    def _run(self, frame: JsonObject) -> None:
        cell = frame["cell"]
        assert isinstance(cell, int)
        calls.current_cell.set(cell)
        self._switchboard.begin(cell)
        self._is_interrupted = self._deferred = False
        try:
            self._interruptible = True
            ending = self._console.run(
                str(frame["code"]),
                name=str(frame["name"]),
                cell=cell,
                clock=_whole_numbers(frame.get("clock")),
            )
        except KeyboardInterrupt:
            ending = self._console.interrupted()
        finally:
            self._interruptible = False
        if os.getpid() != self._pid:
            os._exit(0)  # a forked child reached the end of the cell: that is not the cell's end
        self._switchboard.end()
        if self._is_interrupted:
            self._end_children()
        self._send_clock(cell, self._console.clock.end())
        self._channel.send({"t": "done", "cell": cell, **ending})

    def _end_children(self) -> None:
        """An interrupted cell is over, and so is what it forked: kill all of this pid namespace but its pid 1 and this process."""
        if self._has_own_processes and os.getppid() == 1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            # The kill is an order: on a busy machine what it hits lives a moment longer.
            for _ in range(_LOOKS):
                if not _is_anybody_else_alive():
                    break
                threading.Event().wait(0.005)


def _is_anybody_else_alive() -> bool:
    """Whether a process of this pid namespace runs beside pid 1 and this one."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) not in (1, os.getpid()):
            with contextlib.suppress(OSError):
                if (process / "stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X"):
                    return True
    return False


def _whole_numbers(value: JsonValue) -> list[int]:
    return [item for item in value if isinstance(item, int)] if isinstance(value, list) else []


def furnished_console(
    speech: str,
    *,
    evidence_root: str | Mapping[str, str],
    workspace: str,
    temporary: str = "/tmp",  # noqa: S108 - the sandbox's own
) -> Console:
    """Return a console with its names that has taken over: what of the preparation can be done before there is a session."""
    places = language.Places(evidence=evidence_root, workspace=workspace, temporary=temporary)
    console = Console(language.choose(speech, places))
    console.furnish(evidence_root=evidence_root, workspace=workspace)
    console.take_over()
    Web(calls.host_call).carry_urllib()
    return console


def set_environment(*, workspace: str, temporary: str) -> None:
    """Make the environment the one that cells see, whatever this process was started with."""
    os.environ.clear()
    os.environ.update(HOME=workspace, TMPDIR=temporary, LANG="C.UTF-8")


def prepare(surroundings: Surroundings, channel_fd: int, *, console: Console | None = None) -> Runner:
    """Turn this process into a session's runner; `serve` then runs until the host closes it.

    With a console, the environment is set already: both were prepared before there was a session.
    """
    if console is None:
        set_environment(workspace=surroundings.workspace, temporary=surroundings.temporary)
    sys.dont_write_bytecode = True
    if surroundings.language == "open":
        sys.path += [*surroundings.library_paths, surroundings.workspace]
    else:
        # Not the workspace: what strict code writes there must not be imported by the library on its behalf.
        sys.path += surroundings.language_paths
    # Packages that came along from outside look for what they have not imported yet where it lies here.
    for package in ("sandbox", "sandbox.guest", "sandbox.guest.language"):
        parts = package.split(".")[1:]
        sys.modules[package].__path__ = ["/".join((surroundings.guest_root, *parts))]
    channel = Channel(
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=channel_fd),
        frame_bytes=surroundings.frame_bytes,
        frame_depth=surroundings.frame_depth,
    )
    if console is None:
        console = furnished_console(
            surroundings.language,
            evidence_root=surroundings.evidence_root,
            workspace=surroundings.workspace,
            temporary=surroundings.temporary,
        )
    return Runner(
        channel,
        console,
        calls_in_flight=surroundings.calls_in_flight,
        has_own_processes=surroundings.has_own_processes,
    )
