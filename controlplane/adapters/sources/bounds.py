"""How much may be brought in, counted while it comes: entries, bytes, how far it swells, how deep it nests."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from controlplane.errors import InvalidRequest


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Limits of one piece of evidence that is brought into the home."""

    entries: int = 200_000
    total_bytes: int = 8 << 30
    #: Unpacked bytes for each packed one, once there are more than `swelling_from` of them.
    swelling: int = 250
    swelling_from: int = 64 << 20
    #: Archives within archives that are opened.
    nesting: int = 3


@dataclass
class Tally:
    """What one piece of evidence has used of its bounds. Raises as soon as it is more."""

    what: str
    bounds: Bounds
    packed_bytes: int | None = None
    entries: int = 0
    total_bytes: int = 0
    #: What was left out, and why; the first few.
    notes: list[str] = field(default_factory=list)
    left_out: int = 0

    def entry(self) -> None:
        self.entries += 1
        if self.entries > self.bounds.entries:
            raise InvalidRequest(f"{self.what} holds more than {self.bounds.entries:,} files: it is refused")

    def count(self, blocks: Iterable[bytes]) -> Iterator[bytes]:
        """Pass bytes on, counted."""
        for block in blocks:
            self.total_bytes += len(block)
            self._check()
            yield block

    def _check(self) -> None:
        if self.total_bytes > self.bounds.total_bytes:
            raise InvalidRequest(
                f"{self.what} holds more than {self.bounds.total_bytes:,} bytes: it is refused; name a part of it"
            )
        packed = self.packed_bytes
        if packed is None or self.total_bytes <= self.bounds.swelling_from:
            return
        if self.total_bytes > packed * self.bounds.swelling:
            raise InvalidRequest(
                f"{self.what} swells to more than {self.bounds.swelling} times its size, as a decompression bomb does: "
                "it is refused; unpack it yourself if you trust it, and name the folder"
            )

    def leave_out(self, name: str, reason: str) -> None:
        self.left_out += 1
        if len(self.notes) < 20:
            self.notes.append(f"{name[:200]}: left out, {reason}")

    def all_notes(self) -> tuple[str, ...]:
        more = self.left_out - len(self.notes)
        return (*self.notes, f"{more:,} more were left out") if more > 0 else tuple(self.notes)
