from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controlplane.bootstrap import App, open_app
from controlplane.config import Settings
from tests.integration.controlplane.hands import Hands, a_request


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home")


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
