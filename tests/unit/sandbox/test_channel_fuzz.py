"""Whatever crosses the channel, in either direction: a labelled end or business as usual, and a true record."""

import asyncio
import contextlib
import gc
import json
import os
import socket
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sandbox
from sandbox import Finished, HostCall, Limits, Policy
from sandbox.guest import calls, frames, runner
from sandbox.session import session_over
from tests.unit.sandbox.hostile_guest import HostileGuest

OUTCOMES = {"ok", "error", "ended", "timed_out", "interrupted", "crashed", "violation"}
LIMITS = Limits(frame_bytes=4096, frame_depth=8, output_bytes=512, calls_in_flight=3)
DECLARED = frozenset({"echo", "submit"})

TEXT = st.text(max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
NUMBERS = st.integers(-1, 3) | st.sampled_from([1 << 62, 1 << 64, True, None, 1.0, "1"])
CALLS = st.fixed_dictionaries(
    {
        "t": st.just("call"),
        "cell": st.just(1) | NUMBERS,
        "id": st.integers(0, 6) | NUMBERS,
        "name": st.sampled_from(["echo", "submit", "shell", ""]) | TEXT,
        "payload": st.dictionaries(TEXT, VALUES, max_size=2) | VALUES,
    }
)
ERRORS = st.none() | st.fixed_dictionaries(
    {"type": TEXT, "message": TEXT, "line": st.none() | NUMBERS, "traceback": TEXT}
)
DONES = st.fixed_dictionaries(
    {
        "t": st.just("done"),
        "cell": st.just(1) | NUMBERS,
        "outcome": st.sampled_from(sorted(OUTCOMES)) | TEXT,
        "error": ERRORS,
        "cpu_ms": NUMBERS,
        "memory_bytes": NUMBERS,
    }
)
FRAMES = (CALLS | CALLS | DONES | st.dictionaries(TEXT, VALUES, max_size=4) | VALUES).map(
    lambda value: frames.HEADER.pack(len(body := json.dumps(value).encode())) + body
)
PIECES = FRAMES | FRAMES | FRAMES | st.binary(max_size=40)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def converse(pieces: list[bytes], *, cut: int) -> tuple[list[sandbox.Event], bytes, list[dict]]:
    """Run one cell against a guest that says these bytes and dies; return what the host saw, said and complained of."""
    complaints: list[dict] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    guest = HostileGuest()
    session = await session_over(Policy(limits=LIMITS, calls=DECLARED), guest)
    said = b"".join(pieces)
    events = []

    async def attack() -> None:
        for start in range(0, len(said), cut):
            await guest.speak(said[start : start + cut])
        with contextlib.suppress(BrokenPipeError):
            os.write(guest.writes_stdout, said[:300])
        await asyncio.sleep(0.001)
        guest.listen()
        guest.kill()

    attacking = asyncio.create_task(attack())
    async for event in session.execute("x", deadline_seconds=30):
        events.append(event)
        if isinstance(event, HostCall):
            await session.answer(event.call_id, event.payload)
            await session.answer(event.call_id, "a second answer")
    await attacking
    await session.close()
    assert {task for task in asyncio.all_tasks() if task is not asyncio.current_task()} == set()
    heard = bytes(guest.heard)
    guest.release()
    guest.bury()
    return events, heard, complaints


def replies(heard: bytes) -> list[dict]:
    found = []
    while len(heard) >= frames.HEADER.size:
        (length,) = frames.HEADER.unpack(heard[:4])
        found.append(json.loads(heard[4 : 4 + length]))
        heard = heard[4 + length :]
    return found


@settings(max_examples=150, deadline=None)
@given(pieces=st.lists(PIECES, max_size=12), cut=st.sampled_from([1, 3, 7, 100, 5000]))
def test_whatever_a_guest_says_the_host_ends_the_cell_with_a_label_and_keeps_a_true_record(pieces, cut):
    before = open_descriptors()

    events, heard, complaints = asyncio.run(converse(pieces, cut=cut))

    assert complaints == []
    assert isinstance(events[-1], Finished)
    assert events[-1].outcome in OUTCOMES
    assert not any(isinstance(event, Finished) for event in events[:-1])
    seen = [event for event in events if isinstance(event, HostCall)]
    assert len({call.call_id for call in seen}) == len(seen)
    assert {call.name for call in seen} <= DECLARED
    said = replies(heard)
    assert {reply["t"] for reply in said} <= {"begin", "run", "answer", "refuse"}
    answers = Counter(json.dumps(reply["value"]) for reply in said if reply["t"] == "answer")
    assert answers <= Counter(json.dumps(call.payload) for call in seen)
    gc.collect()
    assert open_descriptors() == before


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=64), frame=CALLS | DONES | st.dictionaries(TEXT, VALUES, max_size=4))
def test_the_guests_reader_takes_a_frame_or_refuses_it(data, frame):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = runner.Channel(theirs, frame_bytes=4096, frame_depth=8)
        body = json.dumps(frame).encode()
        ours.sendall(frames.HEADER.pack(len(body)) + body + data)
        ours.shutdown(socket.SHUT_WR)
        with contextlib.suppress(frames.FrameError, EOFError):
            while True:
                assert isinstance(channel.receive(), dict)


@settings(max_examples=200, deadline=None)
@given(settled=st.lists(st.tuples(st.integers(-1, 5), VALUES), max_size=10))
def test_answers_nobody_waits_for_are_dropped_and_the_others_arrive_once(settled):
    sent: list[dict] = []
    board = calls.Switchboard(sent.append, in_flight=2)
    calls.current_cell.set(1)
    board.begin(1)
    waiting = [board.place("echo", {"n": n}) for n in range(3)]

    for call_id, value in settled:
        board.settle(call_id, value=value)
    board.end()

    assert all(answer.done() for answer in waiting)
    ids = [frame["id"] for frame in sent]
    assert len(ids) == len(set(ids)) <= 3
    first = dict(reversed(settled))
    for frame, answer in zip(sent, waiting, strict=False):
        if answer.exception() is None:
            assert answer.result() == first[frame["id"]] or answer.result() != answer.result()  # NaN


@pytest.mark.parametrize(
    "said",
    [
        b"\x00\x00\x00\x02{}",
        b"\x00\x00\x00\x05[1,2]",
        b"\x00\x00\x00\x04null",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x0c" + b'{"t":"run"}\n',
        b"\x00\x00\x00\x20" + b'{"t":"answer","id":99,"value":1}',
    ],
)
def test_a_real_guest_survives_or_ends_when_its_host_talks_nonsense(said):
    async def story() -> None:
        session = await sandbox.open_session(Policy())
        await session._channel.send(said)
        try:
            async for event in session.execute("1 + 1", deadline_seconds=10):
                last = event
        except sandbox.SessionEnded:
            return
        finally:
            await session.close()
        assert last.outcome in {"ok", "crashed", "violation"}

    asyncio.run(story())
