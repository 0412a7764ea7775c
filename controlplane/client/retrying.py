"""When a request is sent again, and after how long. Pure: chance comes in as a number."""

from dataclasses import dataclass
from typing import Any

from controlplane.client.calls import Call
from controlplane.client.errors import Busy, ClientError, Unreachable


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a client tries before it tells its caller."""

    #: Times a request is sent again.
    retries: int = 5
    #: The first wait; each further one is twice as long.
    first_seconds: float = 0.2
    #: No wait is longer, whatever a server asks for: then the caller is told instead.
    longest_seconds: float = 30.0

    def wait_after(self, error: ClientError, call: Call[Any], *, tried: int, chance: float) -> float | None:
        """Seconds to wait before the request is sent again; None: it is not."""
        if tried >= self.retries or not may_repeat(call, error):
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.longest_seconds else None
        # Half of it by chance, so that many who were turned away together do not come back together.
        return min(self.first_seconds * 2.0**tried, self.longest_seconds) * (0.5 + chance / 2)


def may_repeat(call: Call[Any], error: ClientError) -> bool:
    """A server that is busy did nothing; of a broken connection nobody knows, so only what can be repeated is."""
    match error:
        case Busy():
            return True
        case Unreachable():
            return call.is_repeatable or not error.was_sent
        case _:
            return False
