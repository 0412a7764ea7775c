"""A `custody up` process for each module, a person's folder beside it, and profiles of their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.server.served import Person, Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("served"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def admin(served: Served, tmp_path: Path) -> Person:
    """Whoever got the first key, working somewhere else on the machine."""
    return Person(tmp_path, served, key=served.first_key)
