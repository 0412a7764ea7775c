"""Text of the guest made safe to show: nothing in it can move a cursor or hide."""

import re

# Everything that could move a terminal's cursor or hide text; newline and tab stay.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def escape_controls(text: str) -> str:
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def escape_name(name: bytes) -> str:
    """A file's name on one line: what is not printable UTF-8 is escaped, and no two names are written the same."""
    text = name.decode("utf-8", "surrogateescape")
    return text if text.isprintable() and "\\" not in text else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character == "\\":
        return r"\\"
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # a byte that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    code = ord(character)
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
