"""Text of the guest made safe to show: nothing in it can move a cursor or hide."""

import re

# Everything that could move a terminal's cursor or hide text; newline and tab stay.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def escape_controls(text: str) -> str:
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
