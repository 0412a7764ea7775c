"""Text of evidence and models never reaches the terminal as control sequences."""

from hypothesis import given
from hypothesis import strategies as st

from controlplane.cli.safe import clipped, one_line, printable


def test_escape_sequences_arrive_as_their_names():
    assert printable("\x1b[31mred\x07 \u202etxet") == "\\x1b[31mred\\x07 \\u202etxet"


@given(st.text())
def test_nothing_that_moves_a_terminal_is_left(text):
    safe = printable(text)

    assert not any(ord(character) < 32 and character not in "\t\n" for character in safe)
    assert not any(0x7F <= ord(character) <= 0x9F for character in safe)
    safe.encode("utf-8")


@given(st.text(), st.integers(min_value=1, max_value=60))
def test_one_line_is_one_bounded_line(text, width):
    line = one_line(text, width=width)

    assert len(line) <= width
    assert "\n" not in line


def test_what_is_left_out_is_counted():
    assert clipped("a\nb\nc\nd", lines=2) == "a\nb\n… 2 more lines"
