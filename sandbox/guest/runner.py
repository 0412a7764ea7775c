"""The process inside: reads frames, runs cells one after the other, sends what they ask and how they end."""

import os
import queue
import random
import signal
import socket
import sys
import threading
from dataclasses import dataclass
from types import FrameType

from sandbox.guest import calls, frames
from sandbox.guest.cells import Console
from sandbox.guest.frames import JsonObject


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the runner is told about its sandbox."""

    seed: int
    frame_bytes: int
    frame_depth: int
    calls_in_flight: int
    evidence_root: str
    workspace: str
    guest_root: str
    library_paths: tuple[str, ...]


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
    def __init__(self, channel: Channel, console: Console, *, calls_in_flight: int) -> None:
        self._channel = channel
        self._console = console
        self._switchboard = calls.Switchboard(self._send_call, in_flight=calls_in_flight)
        calls.connect(self._switchboard)
        self._cells: queue.SimpleQueue[JsonObject] = queue.SimpleQueue()
        self._pid = os.getpid()
        self._interruptible = False
        self._deferred = False

    def serve(self) -> None:
        """Run cells for ever: the end comes from the host."""
        signal.signal(signal.SIGINT, self._on_interrupt)
        threading.Thread(target=self._read_frames, daemon=True, name="channel").start()
        while True:
            self._run(self._cells.get())

    def _on_interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        if not self._interruptible:
            return
        if self._channel.sender == threading.main_thread().ident:
            self._deferred = True  # half a frame on the channel would end the session
            return
        raise KeyboardInterrupt

    def _send_call(self, frame: JsonObject) -> None:
        self._channel.send(frame)
        if self._deferred and threading.current_thread() is threading.main_thread():
            self._deferred = False
            raise KeyboardInterrupt

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
            case "run":
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

    def _run(self, frame: JsonObject) -> None:
        cell = frame["cell"]
        assert isinstance(cell, int)
        calls.current_cell.set(cell)
        self._switchboard.begin(cell)
        self._deferred = False
        try:
            self._interruptible = True
            ending = self._console.run(str(frame["code"]), name=str(frame["name"]), cell=cell)
        except KeyboardInterrupt:
            ending = self._console.interrupted()
        finally:
            self._interruptible = False
        if os.getpid() != self._pid:
            os._exit(0)  # a forked child reached the end of the cell: that is not the cell's end
        self._switchboard.end()
        self._channel.send({"t": "done", "cell": cell, **ending})


def prepare(surroundings: Surroundings, channel_fd: int) -> Runner:
    """Turn this process into a session's runner; `serve` then runs until the host closes it."""
    os.environ.clear()
    os.environ.update(HOME=surroundings.workspace, TMPDIR="/tmp", LANG="C.UTF-8")  # noqa: S108 - the sandbox's own
    sys.dont_write_bytecode = True
    sys.path += [*surroundings.library_paths, surroundings.workspace]
    sys.modules["sandbox"].__path__ = [surroundings.guest_root]
    random.seed(surroundings.seed)
    channel = Channel(
        socket.socket(fileno=channel_fd),
        frame_bytes=surroundings.frame_bytes,
        frame_depth=surroundings.frame_depth,
    )
    console = Console()
    console.prepare(evidence_root=surroundings.evidence_root, workspace=surroundings.workspace)
    return Runner(channel, console, calls_in_flight=surroundings.calls_in_flight)
