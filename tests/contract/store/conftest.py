"""Every store passes the same suite: add one here and all of it runs over it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controlplane.adapters.sql_store import SqlStore
from controlplane.ports import Store

OPENERS: dict[str, Callable[[Path], Store]] = {
    "sqlite": lambda folder: SqlStore(folder / "custody.db"),
}


@pytest.fixture(params=sorted(OPENERS))
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens the same store again and again, as several processes would."""
    opened: list[Store] = []

    def open_again() -> Store:
        opened.append(OPENERS[request.param](tmp_path))
        return opened[-1]

    yield open_again
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], Store]) -> Store:
    return open_store()
