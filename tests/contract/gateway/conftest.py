"""One job behind a gateway: in memory as the worker's tests use it, the real one on each store, and the same over HTTP."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controlplane.bootstrap import App, open_app
from controlplane.config import Settings
from controlplane.domain.commands import JobRequest
from controlplane.watchdogs import lease_reaper
from rlm_worker.contracts import Budget
from rlm_worker.contracts.gateway import Desired, Gateway
from rlm_worker.contracts.job import PlaybookDriver
from rlm_worker.contracts.signature import fields_schema
from rlm_worker.remote.gateway import HttpGateway
from rlm_worker.remote.link import Server
from tests.builders import a_spec
from tests.gateway_server import GatewayServer, a_key
from tests.memory_gateway import MemoryGateway
from tests.servers import postgres_database


@dataclass
class InMemory:
    gateway: MemoryGateway
    job_id: str
    generation: int = 0

    def order(self, desired: Desired) -> None:
        self.gateway.order(desired)

    def steer(self, text: str) -> None:
        self.gateway.steer(text)

    def take_lease_away(self) -> None:
        self.gateway.expire()

    def unpark(self) -> None:
        self.gateway.unpark()


@dataclass
class InStore:
    app: App
    gateway: Gateway
    job_id: str

    @property
    def generation(self) -> int:
        return self.app.job(self.job_id).generation

    def order(self, desired: Desired) -> None:
        assert desired != "run"
        self.app.stop(self.job_id, order=desired, by="tester")

    def steer(self, text: str) -> None:
        self.app.steer(self.job_id, text, by="tester")

    def unpark(self) -> None:
        self.app.unpark(self.job_id, by="tester")

    def take_lease_away(self) -> None:
        """Let it run out, and let the reaper find it."""
        with self.app.store.write() as tx:
            lease = tx.leases.get(self.job_id)
            assert lease is not None
            tx.leases.extend(self.job_id, fence=lease.fence, until_ms=tx.now_ms - 1)
        lease_reaper.run_once(self.app.desk)
        self.app.store.announce()


@pytest.fixture(params=["memory", "sqlite", "postgres", "http"])
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InMemory | InStore]:
    if request.param == "memory":
        spec = a_spec()
        yield InMemory(MemoryGateway(spec), spec.job_id)
        return
    url = postgres_database() if request.param == "postgres" else None
    app = open_app(Settings(home=tmp_path / "home", database_url=url))
    submitted = app.submit(
        JobRequest(
            task="What is in the evidence?",
            output_schema=fields_schema("answer: str"),
            budget=Budget(),
            driver=PlaybookDriver(name="test", source="SUBMIT(answer='x')"),
            sub_model="nobody",
        )
    )
    if request.param == "http":
        with GatewayServer(app) as server:
            gateway = HttpGateway(Server(url=server.url, key=a_key(app)), least_poll_seconds=0.001)
            yield InStore(app, gateway, submitted.job_id)
            gateway.close()
    else:
        yield InStore(app, app.gateway(), submitted.job_id)
    app.close()
