"""Texts that must mean something: how worker and control plane alike tell a date from a text that is none."""

from collections.abc import Callable
from datetime import date, datetime, time


def _reads(read: Callable[[str], object]) -> Callable[[str], bool]:
    def fits(text: str) -> bool:
        try:
            read(text)
        except ValueError:
            return False
        return True

    return fits


#: By the name of the format in a JSON Schema. Spelled as Python reads them, so that what passes here comes back as a real value:
#: all of ISO 8601, and times without a zone, as evidence often has them.
FORMATS: dict[str, Callable[[str], bool]] = {
    "date": _reads(date.fromisoformat),
    "date-time": _reads(datetime.fromisoformat),
    "time": _reads(time.fromisoformat),
}
