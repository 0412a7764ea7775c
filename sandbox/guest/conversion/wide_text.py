"""Text in UTF-16 or UTF-32, with its byte order mark, as UTF-8."""

import codecs
from pathlib import Path

from sandbox.guest.conversion.form import Form

#: The longer marks first: one of UTF-32 begins like one of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def convert(path: Path, form: Form) -> None:
    with path.open("rb") as file:
        head = file.read(4)
    encoding = next(encoding for mark, encoding in _MARKS if head.startswith(mark))
    with path.open(encoding=encoding, errors="replace", newline="\n") as opened:
        for line in opened:
            form.line(line.removesuffix("\n").removesuffix("\r"))
