"""Data in prompts: between marks that its author cannot know, with nothing invisible in it.

The mark is a digest over the job, the place and the text itself: a text that holds its own mark cannot be written.
"""

import re

from rlm_worker.contracts import digest

_MARK_CHARS = 12
_FOREIGN = re.compile(r"[^\x00-\x7f]+")
_FORGED = re.compile(r"<(/?)data(?=\s+[0-9a-f]{6,})", re.IGNORECASE)
#: Turns the reading direction, hides letters, or spells words that nobody sees.
_INVISIBLE = re.compile(
    "[\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200c\u200e\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0e\ufeff\uffa0"
    "\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def marked(text: str, *, seed: str) -> str:
    """The text between its marks. The same seed and text give the same bytes."""
    mark = digest([seed, text])[:_MARK_CHARS]
    return f"<data {mark}>\n{defused(text).replace(mark, '…')}\n</data {mark}>"


def defused(text: str) -> str:
    """The text with what looks like a mark made visible as data, and invisible characters spelled out."""
    if "<" in text:
        text = _FORGED.sub(r"<\\\1data", text)
    # Plain text is most of it, and has nothing to hide.
    return text if text.isascii() else _FOREIGN.sub(_seen, text)


def is_on_one_line(text: str) -> bool:
    """Whether a text cannot leave the line it is put on."""
    return len(text.splitlines()) <= 1 and "\n" not in text


def _seen(run: re.Match[str]) -> str:
    return _INVISIBLE.sub(_spelled, run[0])


def _spelled(found: re.Match[str]) -> str:
    return f"\\u{{{ord(found[0]):x}}}"
