"""Citation addresses as text: `name:10`, `name:10-20`, `name@0-99`, `name#page=3`, `name#row=7`, `name#sha256=…`. Looks nothing up."""

import re
from dataclasses import dataclass
from typing import Literal

Unit = Literal["whole", "line", "byte", "page", "row", "content"]

_ADDRESS = re.compile(
    r"(?P<name>.+?)(?::(?P<line>\d{1,12})(?:-(?P<line_end>\d{1,12}))?"
    r"|@(?P<byte>\d{1,15})-(?P<byte_end>\d{1,15})"
    r"|\#(?P<unit>page|row)=(?P<number>\d{1,12})(?:-(?P<number_end>\d{1,12}))?"
    r"|\#sha256=(?P<content>[0-9a-f]{64}))\Z",
    re.DOTALL | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Address:
    """A document's name and what of it is meant, from first to last; of bytes, up to and without the last."""

    name: str
    unit: Unit = "whole"
    first: int = 0
    last: int = 0
    #: Of a whole document as it was when it had this content.
    content: str = ""


def meanings_of(text: str) -> tuple[Address, ...]:
    """What an address can mean, the likeliest first: a document's own name may look like an address."""
    whole = Address(text)
    found = _ADDRESS.match(text)
    if found is None:
        return (whole,)
    if found["content"]:
        return Address(found["name"], "content", content=found["content"]), whole
    unit: Unit = "line" if found["line"] else "byte" if found["byte"] else _unit(found["unit"])
    first = int(found["line"] or found["byte"] or found["number"])
    end = found["line_end"] or found["byte_end"] or found["number_end"]
    return Address(found["name"], unit, first, int(end) if end else first), whole


def _unit(name: str) -> Unit:
    return "page" if name == "page" else "row"
