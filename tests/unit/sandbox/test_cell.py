"""The host's record of a cell: capture, escape, and a clock that can stand still."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.cell import ActiveClock, Capture, RunningCell
from sandbox.escaping import escape_controls
from sandbox.guest import frames


@given(st.lists(st.binary(max_size=40)), st.integers(min_value=1, max_value=100))
def test_a_capture_keeps_the_beginning_and_counts_everything(pieces, limit):
    capture = Capture(kept_bytes=limit)
    emitted = "".join(capture.feed(piece) for piece in pieces) + capture.feed(b"", final=True)
    whole = b"".join(pieces)

    assert capture.total_bytes == len(whole)
    assert capture.text == emitted == escape_controls(whole[:limit].decode(errors="replace"))


@given(st.text())
def test_no_control_character_survives(text):
    assert all(c in "\n\t" or not (ord(c) < 32 or 127 <= ord(c) < 160) for c in escape_controls(text))


def test_a_paused_clock_does_not_run_out():
    async def main():
        expired = asyncio.Event()
        clock = ActiveClock(0.05, expired.set)
        clock.resume()
        clock.pause()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(expired.wait(), 0.15)
        clock.resume()
        await asyncio.wait_for(expired.wait(), 5)

    asyncio.run(main())


def test_the_clock_runs_again_only_when_the_last_call_is_answered():
    async def main():
        clock = ActiveClock(60, lambda: None)
        cell = RunningCell(1, output_bytes=10, clock=clock)
        clock.resume()
        cell.open_call(1, 11, size=1)
        cell.open_call(2, 12, size=1)

        assert cell.close_call(1) == 11
        assert clock._timer is None
        assert cell.close_call(2) == 12
        assert clock._timer is not None
        assert cell.close_call(2) is None

    asyncio.run(main())


def test_the_last_word_is_said_once():
    async def main():
        cell = RunningCell(1, output_bytes=10, clock=ActiveClock(60, lambda: None))
        cell.finish("ok")
        cell.finish("crashed")

        assert cell.events.get_nowait().outcome == "ok"
        assert cell.events.empty()

    asyncio.run(main())


def test_calls_that_hold_too_much_memory_stop_the_reading_until_they_are_answered():
    async def main():
        cell = RunningCell(1, output_bytes=10, clock=ActiveClock(60, lambda: None))
        small = b'{"x":[' + b",".join([b'{"":0}'] * 500_000) + b"]}"
        assert frames.weight(small) > 20 * len(small)

        for number in range(1, 3):
            cell.open_call(number, number, size=frames.weight(small))
        assert not cell.has_room.is_set()
        cell.close_call(1)
        cell.close_call(2)
        assert cell.has_room.is_set()

    asyncio.run(main())


@pytest.mark.parametrize("hidden", ["\u202e", "\u2066", "\u200b", "\u2028", "\ufeff", "\u00ad", "\U000e0041"])
def test_nothing_is_shown_that_cannot_be_seen(hidden):
    shown = escape_controls(f"a{hidden}b")

    assert hidden not in shown
    assert shown.startswith("a\\")


@pytest.mark.parametrize("text", ["naïve — 日本語", "नहीं\u200d", "k\u200cl", "👩\u200d🔬", "a\tb\n"])
def test_what_people_write_is_shown_as_it_is(text):
    assert escape_controls(text) == text
