"""Whole jobs through a real `custody-worker` over HTTP: it has a key, a home of its own, and nothing of the server's."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from controlplane.bootstrap import App, open_app
from controlplane.config import Settings
from controlplane.domain.commands import JobRequest
from controlplane.runtime import EmbeddedRuntime
from controlplane.views import JobView
from rlm_worker.contracts import Budget
from rlm_worker.contracts.job import ModelDriver, PlaybookDriver
from rlm_worker.contracts.signature import fields_schema
from tests.gateway_server import GatewayServer, a_key
from tests.remote_worker import RemoteWorker

LOOK = """# %% look
import hashlib
found = {name: evidence[name].text for name in evidence}
SUBMIT(answer=' '.join(sorted(found)) + ' ' + hashlib.sha256(''.join(found[p] for p in sorted(found)).encode()).hexdigest())
"""


@pytest.fixture
def app(tmp_path):
    opened = open_app(Settings(home=tmp_path / "server", lease_seconds=4.0, lease_margin_seconds=1.0))
    yield opened
    opened.close()


@pytest.fixture
def server(app):
    with GatewayServer(app) as serving:
        yield serving


@pytest.fixture
def start(app, server, tmp_path):
    """Starts workers to which the server's home and the evidence are hidden."""
    started: list[RemoteWorker] = []

    def start_one(*options: str, key: str = "", **env: str) -> RemoteWorker:
        hidden = tuple(path for path in (tmp_path / "server", tmp_path / "evidence") if path.exists())
        home = tmp_path / f"worker-{len(started)}"
        started.append(RemoteWorker(server.url, key or a_key(app), home, *options, hidden=hidden, **env))
        return started[-1]

    yield start_one
    for worker in started:
        if worker.process.poll() is None:
            worker.kill()


def a_request(
    *, playbook: str | None = None, model: str = "http://127.0.0.1:9/v1#nobody", **fields
) -> JobRequest:
    driver = PlaybookDriver(name="test", source=playbook) if playbook else ModelDriver(model=model)
    given = {
        "task": "What is in the evidence?",
        "output_schema": fields_schema("answer: str"),
        "budget": Budget(max_subcalls=2_000),
        "driver": driver,
        "sub_model": model,
    }
    return JobRequest(**{**given, **fields})


def wait(
    app: App, job_id: str, until: Callable[[JobView], bool] = lambda job: job.is_terminal, *, seconds=60
) -> JobView:
    deadline = time.monotonic() + seconds
    with app.store.watch() as watch:
        while True:
            watch.read(job_id, steer_seen=0)
            view = app.job(job_id)
            if until(view):
                return view
            assert time.monotonic() < deadline, f"the job is {view.state}"
            watch.wait(timeout=1)


def run_here(app: App, request: JobRequest) -> JobView:
    with EmbeddedRuntime(app):
        return wait(app, app.submit(request).job_id)


def evidence_in(folder: Path) -> Path:
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.txt").write_text("one\n")
    (folder / "empty.txt").write_text("")
    (folder / "deep" / "b.md").write_text("# two\n" * 1_000)
    (folder / "deep" / "er" / "c d.html").write_text("<html><body><p>three</p></body></html>")
    (folder / "large.log").write_text("four " * 600_000)
    return folder


def test_a_job_over_http_gives_the_result_of_one_in_process_and_a_trace_that_verifies(app, start, tmp_path):
    refs = app.stage([evidence_in(tmp_path / "evidence")])
    request = a_request(playbook=LOOK, input_artifacts=refs)
    here = run_here(app, request)
    assert here.state == "succeeded", here.result.message
    start()

    there = wait(app, app.submit(request).job_id)

    assert there.state == "succeeded", there.result.message
    assert there.result.structured_output == here.result.structured_output
    assert app.verify_trace(there.job_id) > 3
    sealed = {
        job.job_id: [r.event["content_digest"] for r in app.trace(job.job_id) if r.kind == "evidence_sealed"]
        for job in (here, there)
    }
    assert sealed[here.job_id] == sealed[there.job_id] != []
