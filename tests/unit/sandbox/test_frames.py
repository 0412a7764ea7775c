"""The codec: what goes in comes out, and no bytes whatever make it do anything but answer or refuse."""

import contextlib
import json
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import protocol
from sandbox.guest import frames
from sandbox.guest.frames import FrameError

TEXT = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)


@given(st.dictionaries(TEXT, VALUES))
def test_what_is_sent_arrives(frame):
    data = frames.encode(frame, max_bytes=1 << 20)

    assert frames.body_length(data[:4], max_bytes=1 << 20) == len(data) - 4
    assert frames.decode(data[4:], max_depth=64) == frame


@given(st.binary() | VALUES.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_frame_or_a_frame_error(body):
    with contextlib.suppress(FrameError):
        protocol.read(frames.decode(body, max_depth=8))


KEYS = st.sampled_from(
    ["t", "cell", "id", "name", "payload", "outcome", "error", "cpu_ms", "memory_bytes", "line"]
)
KINDS = st.sampled_from(["call", "done", "run", "answer", ""])


@given(st.dictionaries(KEYS, VALUES), KINDS)
def test_any_object_is_a_message_or_a_frame_error(frame, kind):
    try:
        message = protocol.read({**frame, "t": kind})
    except FrameError:
        return
    assert message.cell >= 0


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e400}',
        b'{"a": ' + b"1" * 5000 + b"}",
        b'{"a": "\\ud800"}',
        b'{"\\udfff": 1}',
        b'{"a": "\xed\xa0\x80"}',
        b'{"a": 1} x',
        b'{"a": ' + b"[" * 64 + b"]" * 64 + b"}",
    ],
)
def test_hostile_bodies_are_refused(body):
    with pytest.raises(FrameError):
        frames.decode(body, max_depth=64)


def test_depth_is_counted_exactly():
    body = b'{"a": ' + b"[" * 63 + b"]" * 63 + b"}"

    frames.decode(body, max_depth=64)
    with pytest.raises(FrameError, match="63 levels"):
        frames.decode(body, max_depth=63)


@given(st.integers(min_value=0, max_value=2**32 - 1), st.integers(min_value=0, max_value=2**32 - 1))
def test_a_length_above_the_limit_is_refused_before_reading(length, limit):
    header = frames.HEADER.pack(length)

    if length <= limit:
        assert frames.body_length(header, max_bytes=limit) == length
    else:
        with pytest.raises(FrameError):
            frames.body_length(header, max_bytes=limit)


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), b"bytes", object()])
def test_what_is_not_json_is_not_sent(value):
    with pytest.raises(FrameError):
        frames.encode({"a": value}, max_bytes=1000)


def test_lone_surrogates_are_replaced_on_the_way_out():
    data = frames.encode({"a": "x\ud800y"}, max_bytes=1000)

    assert frames.decode(data[4:], max_depth=8) == {"a": "x?y"}


def test_a_frame_beyond_the_limit_is_not_sent():
    with pytest.raises(FrameError, match="more than the 10 bytes"):
        frames.encode({"a": "long enough"}, max_bytes=10)


def test_a_frame_of_very_many_small_items_is_refused_before_it_is_parsed():
    body = b'{"x":[' + b"[]," * frames.MAX_ITEMS + b"0]}"

    with pytest.raises(FrameError, match="items"):
        frames.decode(body, max_depth=8)


def test_commas_in_text_are_no_items():
    frame = {"text": 'a,[{"\\' * frames.MAX_ITEMS}

    data = frames.encode(frame, max_bytes=1 << 25)

    assert frames.decode(data[4:], max_depth=4) == frame


@pytest.mark.parametrize(
    "body",
    [
        b'{"x":"' + b",a" * (8 << 20) + b'"}',
        b'{"x":"' + b"\\\\,," * (4 << 20) + b'"}',
        b'{"x":"' + b',\\"' * (5 << 20),
        b'{"x":' + b'",' * (8 << 20),
        b'{"x":' + b"\\," * (8 << 20),
    ],
    ids=["commas in text", "escapes in text", "text without end", "quotes only", "backslashes outside"],
)
def test_no_frame_takes_long_to_be_counted(body):
    """Seen to take minutes, and gigabytes, with a regular expression that walks the text."""
    tracemalloc.start()
    started = time.process_time()
    with contextlib.suppress(FrameError):
        frames.decode(body, max_depth=8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert time.process_time() - started < 3
    assert peak < 20 * len(body)
