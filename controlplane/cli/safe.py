"""Text of evidence and models, made harmless for a terminal. Knows nothing of rich or click."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: C0 (but tab and newline), DEL, C1, bidirectional overrides, line separators, zero-width marks, lone surrogates.
_DANGEROUS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


_is_whole: ContextVar[bool] = ContextVar("is_whole", default=False)


@contextmanager
def whole(*, wanted: bool = True) -> Iterator[None]:
    """Within this, nothing is cut: for a pipe, and for whoever asks for all of it."""
    token = _is_whole.set(wanted)
    try:
        yield
    finally:
        _is_whole.reset(token)


def printable(text: str) -> str:
    """Escape what could move the cursor, recolour, retitle or reorder a terminal; keep tabs and newlines."""
    return _DANGEROUS.sub(_escaped, text)


def one_line(text: str, *, width: int = 100) -> str:
    """The text on one line, at most `width` characters, with an ellipsis where it was cut."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= width or _is_whole.get() else flat[: max(width - 1, 0)] + "…"


def clipped(text: str, *, lines: int, width: int = 2_000) -> str:
    """The first lines of a longer text, each bounded, and how much is left out."""
    rows = printable(text).rstrip("\n").split("\n")
    if _is_whole.get():
        width = max(map(len, rows))
    kept = [row if len(row) <= width else row[: width - 1] + "…" for row in rows[:lines]]
    if len(rows) > lines:
        kept.append(f"… {len(rows) - lines} more lines")
    return "\n".join(kept)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
