"""How often a caller may ask: a bucket of tokens for each, which fills with time."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from controlplane.api.problems import TooMany


class Rates:
    """Buckets of the callers that were here lately."""

    _MOST = 10_000

    def __init__(
        self, *, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> None:
        """Let one request pass, or say when to come back."""
        with self._lock:
            now = self._clock()
            left, seen = self._buckets.pop(who, (self._burst, now))
            left = min(self._burst, left + (now - seen) * self._per_second)
            is_over = left < 1
            self._buckets[who] = (left if is_over else left - 1, now)
            if len(self._buckets) > self._MOST:
                self._buckets.popitem(last=False)
        if is_over:
            raise TooMany(
                f"more than {self._per_second:g} requests a second for a while: wait a moment",
                seconds=(1 - left) / self._per_second,
            )
