"""What an attempt stands on: where its evidence lies on this machine, and what becomes of the files that it makes."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rlm_worker.contracts import JobSpec
from rlm_worker.contracts.gateway import Claimed
from rlm_worker.endings import Failed


def _nothing() -> None:
    """Nothing was taken, so nothing is let go of."""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """Made before the attempt begins, closed when it has ended."""

    #: The job as it is run here: the places of its evidence are this machine's.
    spec: JobSpec
    #: Where what the job made is kept, by content; nowhere on some workers.
    artifacts: Path | None = None
    #: Brings a kept file to where the control plane finds it, before the record names it.
    hand_in: Callable[[Path], None] | None = None
    #: Why the job cannot be run at all.
    refused: Failed | None = None
    close: Callable[[], None] = _nothing


class Place(Protocol):
    """A machine that is not the control plane's own."""

    def bring(self, claimed: Claimed, enough: threading.Event) -> Ground:
        """Have everything here that the job needs; when the event is set, as much as there is."""
        ...
