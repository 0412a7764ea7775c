"""Text of the guest made safe to show: nothing in it can move a cursor or hide."""

import re

# Everything that could move a terminal's cursor, turn the order of letters around or be there unseen, such as the tags
# in which instructions are hidden from people. Newline and tab stay, and the joiners that scripts are written with.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def escape_controls(text: str) -> str:
    return text if text.isascii() and text.isprintable() else _HIDDEN.sub(_code, text)


def _code(match: re.Match[str]) -> str:
    number = ord(match[0])
    if number < 1 << 8:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"


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
