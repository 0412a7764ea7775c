"""What the gateway needs of the store for workers of other machines, beside what every worker needs."""

from collections.abc import Collection
from typing import Protocol

#: Changes whenever something is wanted of a job that its worker has not been told; means nothing else.
Mark = tuple[object, ...]


class Remote(Protocol):
    """Workers of other machines, as the store sees them."""

    def holder(self, job_id: str, *, fence: int) -> str | None:
        """Whom a lease was granted to, whether it lasts or not."""
        ...

    def marks(self, job_ids: Collection[str]) -> dict[str, Mark]:
        """What is wanted of each of these jobs; one that is not here has none."""
        ...
