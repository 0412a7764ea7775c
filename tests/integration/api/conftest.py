import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from controlplane.api.app import create_app
from controlplane.api.authenticate import Authenticator
from controlplane.bootstrap import App, open_app
from controlplane.config import Settings
from controlplane.domain.identity import Role, owner
from controlplane.handlers import keys

ADMIN = owner("ada")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", api_rate=10_000, api_burst=10_000)


@pytest.fixture
def app(settings: Settings) -> Iterator[App]:
    opened = open_app(settings)
    yield opened
    opened.close()


@pytest.fixture
def api(app: App) -> FastAPI:
    return create_app(app, auth=Authenticator(desk=app.desk))


@pytest.fixture
def key(app: App) -> Callable[..., str]:
    """A key for a role of a tenant; every tenant's when none is named."""
    numbers = itertools.count()

    def make(*roles: Role, tenant: str = "a", name: str = "") -> str:
        principal = name or f"{'-'.join(roles)}-{next(numbers)}"
        _, whole = keys.issue(app.desk, principal=principal, roles=roles, tenant_id=tenant, caller=ADMIN)
        return whole

    return make


@pytest.fixture
def client(api: FastAPI, key: Callable[..., str]) -> Iterator[Callable[..., TestClient]]:
    """A client that comes with a key for these roles."""
    with ExitStack() as stack:

        def make(*roles: Role, tenant: str = "a", name: str = "") -> TestClient:
            headers = {"Authorization": f"Bearer {key(*roles, tenant=tenant, name=name)}"} if roles else {}
            made = TestClient(api, headers=headers, raise_server_exceptions=False)
            return stack.enter_context(made)

        yield make


@pytest.fixture
def slow_settings(settings: Settings) -> Settings:
    return replace(settings, api_rate=1.0, api_burst=2.0)
