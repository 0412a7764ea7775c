"""Which paths are wanted: shell patterns over whole paths, where only ** crosses directories."""

import fnmatch
import re
from functools import lru_cache

_ANY_DIRECTORIES = "**"


class Globs:
    """`*.csv`, `out/**`, `**/report-?.md`. Without any pattern every path is wanted."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._patterns = [pattern.split("/") for pattern in patterns]

    def match(self, path: str) -> bool:
        parts = path.split("/")
        return not self._patterns or any(_fits(pattern, parts) for pattern in self._patterns)


def _fits(pattern: list[str], parts: list[str]) -> bool:
    """Step through the pattern with the set of places in the path it may have come to: no backtracking."""
    places = {0}
    for number, piece in enumerate(pattern):
        if piece == _ANY_DIRECTORIES:
            # At the end of a pattern it stands for at least one name: `out/**` is what lies below out.
            least = min(places) + (number == len(pattern) - 1)
            places = set(range(least, len(parts) + 1))
        else:
            name = _compiled(piece)
            places = {place + 1 for place in places if place < len(parts) and name.match(parts[place])}
        if not places:
            return False
    return len(parts) in places


@lru_cache(maxsize=256)
def _compiled(piece: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(piece))
