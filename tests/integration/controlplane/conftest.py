from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controlplane.bootstrap import App, open_app
from controlplane.config import Settings
from tests.integration.controlplane.hands import Hands, a_request
from tests.servers import postgres_database


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module says with STORES over which of them its tests run; SQLite when it says nothing."""
    if "store_kind" in metafunc.fixturenames:
        metafunc.parametrize("store_kind", getattr(metafunc.module, "STORES", ("sqlite",)))


@pytest.fixture
def settings(tmp_path: Path, store_kind: str) -> Settings:
    url = postgres_database() if store_kind == "postgres" else None
    return Settings(home=tmp_path / "home", database_url=url)


@pytest.fixture
def app(settings: Settings) -> Iterator[App]:
    opened = open_app(settings)
    yield opened
    opened.close()


@pytest.fixture
def hands(app: App) -> Callable[..., Hands]:
    """Submits a job and gives the hands to work on it."""

    def make(**fields: object) -> Hands:
        return Hands(gateway=app.gateway(), job_id=app.submit(a_request(**fields)).job_id)

    return make
