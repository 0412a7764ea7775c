"""A server on loopback with keys, and both clients of it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controlplane.api.server import serving
from controlplane.bootstrap import App, open_app
from controlplane.client import Client
from controlplane.config import Settings
from controlplane.domain.identity import Role, owner
from controlplane.handlers import keys


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    opened = open_app(Settings(home=tmp_path / "home", api_rate=10_000, api_burst=10_000))
    yield opened
    opened.close()


@pytest.fixture
def address(app: App) -> Iterator[str]:
    with serving(app) as found:
        yield found


@pytest.fixture
def key(app: App) -> Callable[..., str]:
    def make(*roles: Role, tenant: str = "a") -> str:
        _, whole = keys.issue(
            app.desk, principal=f"{roles[0]}-of-{tenant}", roles=roles, tenant_id=tenant, caller=owner("ada")
        )
        return whole

    return make


@pytest.fixture
def client(address: str, key: Callable[..., str]) -> Iterator[Client]:
    with Client(address, key=key("admin", "operator")) as made:
        yield made
