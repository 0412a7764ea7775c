"""A session: one confined interpreter that runs cells one after the other. Knows nothing of jobs or models."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from pathlib import Path

from sandbox import opening, protocol
from sandbox.artifacts import Collected
from sandbox.backends.port import Guest
from sandbox.cell import ActiveClock, RunningCell
from sandbox.channel import Channel
from sandbox.ending import Cause, describe_exit, limit_of
from sandbox.errors import PolicyError, SessionBusy, SessionEnded, UnsendableAnswer
from sandbox.events import ClockRead, Draft, Event, HostCall, KillReport, Outcome, Stream, Submit
from sandbox.guest.frames import FrameError, JsonObject, JsonValue
from sandbox.network import CALL, OFF, NetworkRefused
from sandbox.policy import Policy

_READ_BYTES = 1 << 16
_PIPE_BYTES = 1 << 20  # the most a pipe can hold: what a cell wrote before it ended is within it
_STALE_FRAMES, _STALE_BYTES = 10_000, 64 << 20
_TURNED_AWAY = 1_000
# Between cells so much output is read and dropped before a rest: a flood costs the host next to nothing.
_IDLE_BYTES, _IDLE_SECONDS = 1 << 20, 0.25
_TIMES_READ = 1_000_000
_KILL_SECONDS = 10.0
_CLOSE_SECONDS = 1.0
_KINDS: dict[str, type[HostCall]] = {"draft": Draft, "submit": Submit}


async def open_session(policy: Policy) -> "Session":
    """Return a confined session whose layers hold, or raise SandboxUnavailable and leave nothing."""
    ready = opening.take_ready(policy)
    if ready is not None:
        return await session_over(policy, ready)
    spawning = asyncio.get_running_loop().run_in_executor(None, opening.open_guest, policy)
    try:
        guest = await asyncio.shield(spawning)
    except asyncio.CancelledError:
        spawning.add_done_callback(_abandon)
        raise
    return await session_over(policy, guest)


async def session_over(policy: Policy, guest: Guest) -> "Session":
    """Return a session with a guest that is already confined."""
    session = Session(policy, guest, await Channel.over(guest.channel, policy.limits))
    await session.begin()
    return session


def _abandon(spawning: "asyncio.Future[Guest]") -> None:
    if not spawning.cancelled() and spawning.exception() is None:
        spawning.result().kill()
        spawning.result().release()


def warm(policy: Policy | None = None, *, size: int = 0) -> None:
    """Prepare for the first session in the background, and keep `size` sandboxes ready for policies of this shape.

    Policies are of one shape when they differ only in evidence, seed, calls, network and what is collected.
    """
    chosen = policy or Policy()
    backend = opening.backend(chosen.backend)
    backend.warm()
    if policy is not None:
        keep_ready = getattr(backend, "keep_ready", None)
        if keep_ready is None:
            raise PolicyError(
                f"the {chosen.backend} backend keeps no sandboxes ready: call warm() without a policy"
            )
        keep_ready(policy, size)


class Session:
    def __init__(self, policy: Policy, guest: Guest, channel: Channel) -> None:
        self._policy = policy
        self._guest = guest
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._cell: RunningCell | None = None
        self._cells = 0
        self._calls = 0
        self._stale = 0
        self._stale_bytes = 0
        self._cause = Cause()
        self._gone = asyncio.Event()
        self._killed: KillReport | None = None
        self._is_closed = False
        self._survivors: tuple[int, ...] = ()
        self._idle_bytes = 0
        self._resting: dict[Stream, asyncio.TimerHandle] = {}
        self._streams: dict[Stream, int] = {"stdout": guest.stdout, "stderr": guest.stderr}
        self._tasks: set[asyncio.Task[None]] = set()
        for stream, fd in self._streams.items():
            os.set_blocking(fd, False)
            self._loop.add_reader(fd, self._on_output, stream)
        self._loop.add_reader(guest.gone, self._on_exit)
        self._reading = self._loop.create_task(self._read_frames())

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers that hold, as the guest's own confinement reported them."""
        return self._guest.layers

    @property
    def pid(self) -> int:
        """The host's process id of the sandbox's pid 1."""
        return self._guest.init_pid

    @property
    def alive(self) -> bool:
        return not self._cause.is_final and not self._gone.is_set()

    async def begin(self) -> None:
        """Tell the guest what its session is for."""
        frame = protocol.begin_frame(seed=self._policy.seed, tools=sorted(self._policy.calls))
        await self._send(self._encode(frame))

    # ---------------------------------------------------------------- cells

    async def execute(
        self, code: str, *, deadline_seconds: float, name: str = "cell", clock: Sequence[int] = ()
    ) -> AsyncIterator[Event]:
        """Run one cell; yields its events, the last being Finished. Leaving early kills the session.

        A cell that is repeated reads the times of `clock` before true ones.
        """
        order = self._encode(protocol.run_frame(self._cells + 1, code=code, name=name, clock=clock))
        cell = self._begin(deadline_seconds)
        try:
            await self._send(order)
            while not (cell.finished.is_set() and cell.events.empty()):
                yield await cell.next_event()
        finally:
            if not cell.finished.is_set():
                await self.kill()
            if self._cell is cell:
                self._cell = None

    def _begin(self, deadline_seconds: float) -> RunningCell:
        if not self.alive:
            raise SessionEnded(f"the session has ended ({self._cause.detail or 'closed'}): open a new one")
        if self._cell is not None and not self._cell.finished.is_set():
            raise SessionBusy("a cell is running in this session: wait for its Finished event")
        if self._resting:
            self._drain()
            for stream in tuple(self._resting):
                self._listen(stream)
        self._cells += 1
        clock = ActiveClock(deadline_seconds, self._on_deadline)
        self._cell = RunningCell(self._cells, output_bytes=self._policy.limits.output_bytes, clock=clock)
        clock.resume()
        return self._cell

    async def room(self) -> None:
        """Wait until the guest has read most of what it was answered. For whoever makes large answers, before making one."""
        await self._channel.has_room.wait()

    async def answer(self, call_id: int, value: JsonValue) -> None:
        """Answer a host call. An answer to a cell that has ended is dropped."""
        await self._reply(call_id, {"t": "answer", "value": value})

    async def refuse(self, call_id: int, *, error: str, message: str, detail: JsonValue = None) -> None:
        """Refuse a host call: the cell sees an exception of the class named by `error`."""
        await self._reply(call_id, {"t": "refuse", "error": error, "message": message, "detail": detail})

    async def _reply(self, call_id: int, reply: JsonObject) -> None:
        cell = self._cell
        if cell is None or call_id not in cell.open_calls:
            return
        data = self._encode({**reply, "id": cell.open_calls[call_id]})
        cell.close_call(call_id)
        await self._send(data)

    def _encode(self, frame: JsonObject) -> bytes:
        try:
            return self._channel.encode(frame)
        except FrameError as error:
            raise UnsendableAnswer(f"this cannot be sent into the sandbox: {error}") from None

    async def _send(self, data: bytes) -> None:
        try:
            await self._channel.send(data)
        except TimeoutError:
            self._end("violation", "the guest does not read its channel")

    # ---------------------------------------------------------------- what the guest says

    async def _read_frames(self) -> None:
        try:
            while True:
                frame, size = await self._channel.receive()
                self._take(protocol.read(frame), size=size)
                if self._cell is not None:
                    await self._cell.has_room.wait()
                await self._channel.has_room.wait()
        except FrameError as error:
            self._end("violation", str(error))
        except (EOFError, ConnectionError):
            # Normally the guest is dying. One that lives on without its channel is of no use.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), _CLOSE_SECONDS)
            self._end("violation", "the guest closed its channel")

    def _take(self, message: protocol.Call | protocol.Clock | protocol.Done, *, size: int) -> None:
        cell = self._cell
        if message.cell > self._cells:
            raise FrameError(f"a frame for cell {message.cell}, which does not exist")
        if cell is None or message.cell != cell.number or cell.finished.is_set():
            self._stale += 1
            self._stale_bytes += size
            if self._stale > _STALE_FRAMES or self._stale_bytes > _STALE_BYTES:
                raise FrameError("too many frames of cells that have ended")
        elif isinstance(message, protocol.Call):
            self._take_call(cell, message, size=size)
        elif isinstance(message, protocol.Clock):
            cell.times_read += len(message.read)
            if cell.times_read > _TIMES_READ:
                raise FrameError(f"more than {_TIMES_READ} times read in one cell")
            cell.tell(ClockRead(read=message.read))
        else:
            self._take_done(cell, message)

    def _take_call(self, cell: RunningCell, call: protocol.Call, *, size: int) -> None:
        if len(cell.open_calls) >= self._policy.limits.calls_in_flight:
            raise FrameError(f"more than {self._policy.limits.calls_in_flight} calls in flight")
        if call.guest_id in cell.open_calls.values():
            raise FrameError(f"call id {call.guest_id} is used twice")
        if call.name == CALL and not self._policy.network.allow:
            self._turn_away(cell, call, error=NetworkRefused.guest_error, message=OFF)
        elif call.name != CALL and call.name not in self._policy.calls:
            message = f"host call {call.name!r} is not declared for this session"
            self._turn_away(cell, call, error="HostCallError", message=message)
        else:
            self._calls += 1
            cell.open_call(self._calls, call.guest_id, size=size)
            kind = _KINDS.get(call.name, HostCall)
            cell.tell(kind(call_id=self._calls, name=call.name, payload=call.payload))

    def _turn_away(self, cell: RunningCell, call: protocol.Call, *, error: str, message: str) -> None:
        """Refuse a call that nobody declared. The cell's clock goes on meanwhile: it waits for nobody."""
        cell.turned_away += 1
        if cell.turned_away > _TURNED_AWAY:
            raise FrameError(f"more than {_TURNED_AWAY} calls that are not declared")
        frame: JsonObject = {"t": "refuse", "error": error, "message": message, "detail": None}
        self._spawn(self._send(self._encode({**frame, "id": call.guest_id})))

    def _take_done(self, cell: RunningCell, done: protocol.Done) -> None:
        outcome: Outcome = done.outcome
        if cell.is_timed_out and outcome in {"interrupted", "error"}:
            outcome = "timed_out"
        elif outcome == "interrupted" and not cell.is_interrupted:
            outcome = "error"  # the code raised KeyboardInterrupt itself
        self._drain()
        cell.finish(outcome, done=done)

    def _on_output(self, stream: Stream) -> None:
        """Read what is there. Output that comes between cells belongs to none and is dropped."""
        try:
            data = os.read(self._streams[stream], _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._streams[stream])
        elif self._cell is not None and not self._cell.finished.is_set():
            self._cell.take_output(stream, data)
        else:
            self._idle_bytes += len(data)
            if self._idle_bytes > _IDLE_BYTES:
                self._rest(stream)

    def _rest(self, stream: Stream) -> None:
        """Read no more of a stream for a moment: it belongs to no cell."""
        self._loop.remove_reader(self._streams[stream])
        self._resting[stream] = self._loop.call_later(_IDLE_SECONDS, self._listen, stream)

    def _listen(self, stream: Stream) -> None:
        self._idle_bytes = 0
        self._resting.pop(stream).cancel()
        if not self._gone.is_set():
            self._loop.add_reader(self._streams[stream], self._on_output, stream)

    def _drain(self) -> None:
        """Take what is in the pipes now, and no more, so that a flood cannot hold the host here."""
        for stream, fd in self._streams.items():
            left = _PIPE_BYTES
            with contextlib.suppress(BlockingIOError):
                while left > 0 and (data := os.read(fd, _READ_BYTES)):
                    left -= len(data)
                    if self._cell is not None:
                        self._cell.take_output(stream, data)

    # ---------------------------------------------------------------- ends

    async def interrupt(self) -> None:
        """Interrupt the running cell as Ctrl-C would; its variables survive if the code lets go."""
        if self._cell is not None and self.alive:
            self._cell.is_interrupted = True
            self._guest.interrupt()

    def _on_deadline(self) -> None:
        if self._cell is not None and self.alive:
            self._cell.is_timed_out = True
            self._spawn(self._enforce_deadline(self._cell))

    async def _enforce_deadline(self, cell: RunningCell) -> None:
        self._guest.interrupt()
        try:
            await asyncio.wait_for(cell.finished.wait(), self._policy.interrupt_grace_seconds)
        except TimeoutError:
            self._end("timed_out", "the code did not react to the interrupt at its deadline and was killed")

    def _end(self, outcome: Outcome, detail: str) -> None:
        """Kill the sandbox for a reason; the first reason stays."""
        self._cause.set(outcome, detail)
        if not self._gone.is_set():
            self._guest.kill()

    def _on_exit(self) -> None:
        """Nothing of the guest is left."""
        self._loop.remove_reader(self._guest.gone)
        self._spawn(self._conclude())

    async def _conclude(self) -> None:
        self._drain()
        ending = await self._guest.ending()
        if ending.violation:
            self._cause.set("violation", ending.violation)
        self._cause.set("crashed", describe_exit(ending), limit=limit_of(ending))
        for resting in self._resting.values():
            resting.cancel()
        for fd in self._streams.values():
            self._loop.remove_reader(fd)
        self._survivors = ending.survivors
        self._gone.set()
        if self._cell is not None:
            self._cell.finish(self._cause.outcome, cause=self._cause)
        self._reading.cancel()
        self._channel.close()
        if self._is_closed:
            self._guest.release()

    def kill_now(self) -> None:
        """Send the kill and return; safe from any thread. `kill` waits for its effect."""
        self._guest.kill()

    async def kill(self) -> KillReport:
        """Kill everything in the sandbox and return when nothing is left. A second kill reports the same."""
        started = time.monotonic()
        if self._killed is None:
            self._end("interrupted", "the session was killed")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._gone.wait(), _KILL_SECONDS)
            survivors = self._survivors if self._gone.is_set() else (self._guest.init_pid,)
            milliseconds = (time.monotonic() - started) * 1000
            self._killed = KillReport(duration_ms=milliseconds, survivors=survivors)
        return self._killed

    async def artifacts(self, into: str | Path) -> Collected:
        """Copy what code left in its workspace into a directory; what is too large or no plain file is named as skipped."""
        return await asyncio.to_thread(self._guest.collect, Path(into), self._policy.artifacts)

    async def close(self) -> None:
        """Ask the guest to leave, make sure, and let go of what it left: artifacts can be had until then."""
        if self.alive and self._cell is None:
            self._cause.set("ended", "the session was closed")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._channel.send(self._encode(protocol.CLOSE_FRAME))
                    await self._gone.wait()
        await self.kill()
        self._is_closed = True
        if self._gone.is_set():
            self._guest.release()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
