"""Every store passes the same suite: add one here and all of it runs over it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controlplane.adapters.databases import Place
from controlplane.adapters.sql_store import SqlStore
from controlplane.ports import Store
from tests.servers import postgres_database

PLACES: dict[str, Callable[[Path], Place]] = {
    "sqlite": lambda folder: folder / "custody.db",
    "postgres": lambda _: postgres_database(),
}


@pytest.fixture(params=sorted(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a database is, that nobody has opened yet."""
    return PLACES[request.param](tmp_path)


@pytest.fixture
def open_store(place: Place) -> Iterator[Callable[[], Store]]:
    """Opens the same store again and again, as several processes would."""
    opened: list[SqlStore] = []

    def open_again() -> Store:
        opened.append(SqlStore(place))
        return opened[-1]

    yield open_again
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], Store]) -> Store:
    return open_store()
