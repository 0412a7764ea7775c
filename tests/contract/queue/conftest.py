"""Every broker passes the same suite: add one here and all of it runs over it."""

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.adapters.databases import Place
from controlplane.adapters.sql_broker import SqlBroker
from controlplane.adapters.sql_store import SqlStore
from rlm_worker.wakeups import redis_broker
from tests.servers import postgres_database, valkey_url


def _on_table(place: Place) -> Callable[[], Any]:
    SqlStore(place).close()
    return lambda: SqlBroker(place, visibility_ms=60_000)


def _on_redis(_folder: Path) -> Callable[[], Any]:
    url, namespace = valkey_url(), secrets.token_hex(4)
    return lambda: redis_broker(url, namespace=namespace)


OPENERS: dict[str, Callable[[Path], Callable[[], Any]]] = {
    "redis": _on_redis,
    "sqlite": lambda folder: _on_table(folder / "custody.db"),
    "postgres": lambda _: _on_table(postgres_database()),
}


@pytest.fixture(params=sorted(OPENERS))
def open_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Any]]:
    """Opens the same queue again and again, as several processes would."""
    opener = OPENERS[request.param](tmp_path)
    opened: list[Any] = []

    def open_again() -> Any:
        opened.append(opener())
        opened[-1].declare_queue("q")
        return opened[-1]

    yield open_again
    for broker in opened:
        broker.close()
