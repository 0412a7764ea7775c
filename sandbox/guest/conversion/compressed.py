"""Compressed text: gzip, bzip2 and xz, unpacked line by line as far as a text form may go."""

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandbox.guest.conversion.form import Form
from sandbox.guest.conversion.xml_parts import BadDocument

_PROBE = 8192
_LONGEST = 1 << 20
_OPENERS: dict[bytes, Callable[..., Any]] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}


def convert(path: Path, form: Form) -> None:
    with path.open("rb") as packed:
        opener = _OPENERS.get(packed.read(2))
    if opener is None:
        raise BadDocument("it is not compressed as its name says")
    with opener(path, "rb") as opened:
        first = opened.readline(_LONGEST)
        if b"\0" in first[:_PROBE]:
            raise BadDocument("what is packed in it is no text: give it as evidence of its own")
        line = first
        while line:
            form.line(_text(line))
            line = opened.readline(_LONGEST)


def _text(line: bytes) -> str:
    plain = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return plain.decode()
    except UnicodeDecodeError:
        return plain.decode("cp1252", "replace")
