"""Pid 1 of the container: forks the runner and carries its wires over the attached pipe.

It has the code's uid, so the host believes it no more than the code. It never waits for one wire alone.
"""

import fcntl
import json
import os
import select
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

from sandbox.backends.docker.inside import confinement, records, walk
from sandbox.guest import runner as guest_runner

_CHANNEL_FD, _REPORT_FD = 3, 4
_READ_BYTES = 1 << 16
_QUEUED_BYTES = 1 << 18  # above it nothing more is read from the runner
_PIPE_BYTES = 1 << 16  # what a pipe holds: what was written before a frame is within it
_CHANNEL_READS = 16
_LEAVE_SECONDS = 5.0


class Wires:
    """The relay's ends of the runner's wires, and the runner's own."""

    def __init__(self) -> None:
        self.channel, self.their_channel = socket.socketpair()
        self.stdout, self.their_stdout = os.pipe()
        self.stderr, self.their_stderr = os.pipe()
        self.report, self.their_report = os.pipe()

    def keep_ours(self) -> None:
        self.their_channel.close()
        for fd in (self.their_stdout, self.their_stderr, self.their_report):
            os.close(fd)
        self.channel.setblocking(False)
        for fd in (0, 1, self.stdout, self.stderr, self.report):
            os.set_blocking(fd, False)

    def keep_theirs(self) -> int:
        """Put the runner's ends in their places; return where it reports."""
        theirs = (self.their_stdout, self.their_stderr, self.their_channel.detach(), self.their_report)
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in theirs]
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        for place, fd in enumerate(high, start=1):
            os.dup2(fd, place)
        os.closerange(_REPORT_FD + 1, 256)
        return _REPORT_FD


class Relay:
    def __init__(self, wires: Wires, runner: int, wake: int) -> None:
        self._wires = wires
        self._runner = runner
        self._wake = wake
        self._decoder = records.Decoder(
            kinds=frozenset({records.CHANNEL, records.INTERRUPT, records.COLLECT, records.LEAVE})
        )
        self._outgoing = bytearray()
        self._for_runner = bytearray()
        self._walk: Iterator[bytes] | None = None
        self._status: int | None = None
        self._sources: dict[int, Callable[[], object]] = {
            wires.stdout: lambda: self._forward(wires.stdout, records.STDOUT),
            wires.stderr: lambda: self._forward(wires.stderr, records.STDERR),
            wires.report: self._forward_report,
            wires.channel.fileno(): self._take_frames,
        }

    def serve(self) -> int:
        """Carry until the runner has ended and the host knows, or the host is gone. Return the status to end with."""
        while True:
            patience = None if self._status is None else _LEAVE_SECONDS * 1000
            ready = dict(self._poll(0 if self._can_walk else patience))
            if not ready and not self._can_walk:
                break
            if 0 in ready and not self._take_orders():
                break
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._reap()
            if self._wires.channel.fileno() in ready and self._for_runner:
                self._feed_runner()
            for fd, take in list(self._sources.items()):
                if ready.get(fd, 0) & (select.POLLIN | select.POLLHUP | select.POLLERR):
                    take()
            if self._can_walk:
                self._step()
            self._write()
        return self._status or 0

    def _poll(self, patience: float | None) -> list[tuple[int, int]]:
        poller = select.poll()
        poller.register(0, select.POLLIN)
        poller.register(self._wake, select.POLLIN)
        if self._outgoing:
            poller.register(1, select.POLLOUT)
        channel = self._wires.channel.fileno()
        for fd in self._sources if len(self._outgoing) < _QUEUED_BYTES else ():
            poller.register(fd, select.POLLIN)
        if self._for_runner and channel in self._sources:
            is_read = len(self._outgoing) < _QUEUED_BYTES
            poller.register(channel, select.POLLOUT | (select.POLLIN if is_read else 0))
        return poller.poll(patience)

    # ---------------------------------------------------------------- from the host

    def _take_orders(self) -> bool:
        try:
            data = os.read(0, _READ_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        for kind, body in self._decoder.feed(data):
            if kind == records.CHANNEL:
                self._for_runner += body
            elif kind == records.INTERRUPT:
                if self._status is None:
                    os.kill(self._runner, signal.SIGINT)
            elif kind == records.COLLECT:
                self._walk = walk.steps(confinement.WORKSPACE, walk.Limits(**json.loads(body)))
            else:
                return False
        if self._for_runner:
            self._feed_runner()
        return True

    def _feed_runner(self) -> None:
        try:
            sent = self._wires.channel.send(self._for_runner)
        except BlockingIOError:
            return
        except OSError:
            sent = len(self._for_runner)  # the runner has closed its end: nobody takes it any more
        del self._for_runner[:sent]
        self._outgoing += records.encode(records.TAKEN, sent.to_bytes(4, "big"))

    # ---------------------------------------------------------------- from the runner

    def _take_frames(self) -> None:
        """Forward frames, and before them all output that was written before them."""
        try:
            data = self._wires.channel.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._take_output()
        if data:
            self._outgoing += records.encode(records.CHANNEL, data)
        else:
            del self._sources[self._wires.channel.fileno()]

    def _take_output(self) -> None:
        """Take what is in the pipes now, and no more: a child of the code may write without end."""
        for fd, kind in ((self._wires.stdout, records.STDOUT), (self._wires.stderr, records.STDERR)):
            left = _PIPE_BYTES
            while left > 0 and fd in self._sources:
                taken = self._forward(fd, kind)
                if not taken:
                    break
                left -= taken

    def _forward(self, fd: int, kind: bytes) -> int:
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return 0
        if data:
            self._outgoing += records.encode(kind, data)
        else:
            del self._sources[fd]
        return len(data)

    def _forward_report(self) -> None:
        while self._wires.report in self._sources and self._forward(self._wires.report, records.REPORT):
            pass
        if self._wires.report not in self._sources:
            self._outgoing += records.encode(records.REPORT)

    def _reap(self) -> None:
        """Reap every orphan; when it is the runner, send what it left and how it ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._runner:
                code = os.waitstatus_to_exitcode(status)
                self._status = code if code >= 0 else 128 - code
                self._take_the_rest()
                self._outgoing += records.encode(records.EXIT, self._status.to_bytes(4, "big"))

    def _take_the_rest(self) -> None:
        """Take what a runner that has ended left in its wires: no more than they hold."""
        if self._wires.report in self._sources:
            self._forward_report()
        for _ in range(_CHANNEL_READS):
            before = len(self._outgoing)
            if self._wires.channel.fileno() in self._sources:
                self._take_frames()
            if len(self._outgoing) == before:
                break
        self._take_output()

    # ---------------------------------------------------------------- to the host

    @property
    def _can_walk(self) -> bool:
        return self._walk is not None and len(self._outgoing) < _QUEUED_BYTES

    def _step(self) -> None:
        assert self._walk is not None
        record = next(self._walk, None)
        if record is None:
            self._walk = None
        else:
            self._outgoing += record

    def _write(self) -> None:
        if self._outgoing:
            try:
                written = os.write(1, self._outgoing[:_READ_BYTES])
            except BlockingIOError:
                return
            del self._outgoing[:written]


def _read_orders() -> confinement.Orders:
    """Read the host's first word: pieces of JSON, ended by an empty one."""
    decoder = records.Decoder(kinds=frozenset({records.PLAN}))
    text = b""
    while data := os.read(0, _READ_BYTES):
        for _, body in decoder.feed(data):
            if not body:
                return confinement.Orders(**json.loads(text))
            text += body
    raise EOFError("the host is gone")


def _be_runner(orders: confinement.Orders, wires: Wires, put_on: dict[str, Any]) -> None:
    """Be the process in which cells run: last checks, the filter, then the REPL."""
    status = 70
    report = wires.keep_theirs()
    try:
        os.umask(0o077)
        os.chdir(confinement.WORKSPACE)
        confinement.limit_runner(orders)
        closed = [path for path in orders.evidence if not _is_open(path)]
        if closed:
            _tell(report, {"unreadable": closed[0]})
            return
        prepared = _prepare(orders)
        found = confinement.facts()
        filtered = confinement.install_filter(orders.runner_filter)
        _tell(report, {**found, **put_on, "filtered": filtered, "seccomp": confinement.seccomp_mode()})
        prepared.serve()
    except Exception as error:  # noqa: BLE001 - the guest's own names failed to load: say it instead of dying mute
        _tell(report, {"failed": f"the guest did not start: {error!r}"[:2000]})
    finally:
        os._exit(status)


def _is_open(path: str) -> bool:
    needed = os.R_OK | (os.X_OK if os.path.isdir(path) else 0)  # noqa: PTH112
    return os.access(path, needed)


def _prepare(orders: confinement.Orders) -> guest_runner.Runner:
    return guest_runner.prepare(
        guest_runner.Surroundings(
            frame_bytes=orders.frame_bytes,
            frame_depth=orders.frame_depth,
            calls_in_flight=orders.calls_in_flight,
            evidence_root=confinement.EVIDENCE,
            workspace=confinement.WORKSPACE,
            guest_root=confinement.GUEST,
            library_paths=tuple(orders.libraries),
            has_own_processes=True,
            language=orders.language,
            language_paths=(confinement.STRICT,) if orders.language == "strict" else (),
        ),
        _CHANNEL_FD,
    )


def _tell(report: int, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode()
    while data:
        data = data[os.write(report, data) :]
    os.close(report)


def main() -> int:
    """Confine, fork the runner, carry. Ends when the runner has ended or the host is gone."""
    orders = _read_orders()
    put_on = confinement.harden(orders)
    wires = Wires()
    runner = os.fork()
    if runner == 0:
        _be_runner(orders, wires, put_on)
    wires.keep_ours()
    wake, waker = os.pipe()
    for fd in (wake, waker):
        os.set_blocking(fd, False)
    # Not every kernel that answers here spares pid 1 the signals of its own children.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    os.write(waker, b"\0")  # a runner that ended before the handler stood
    confinement.install_filter(orders.relay_filter)
    return Relay(wires, runner, wake).serve()
