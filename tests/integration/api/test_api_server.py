"""Who a server is open to, and how it begins and ends."""

from dataclasses import replace

import httpx2
import pytest
from starlette.testclient import TestClient

from controlplane.api import server
from controlplane.config import Settings
from controlplane.domain.identity import owner
from controlplane.errors import InvalidRequest
from controlplane.handlers import keys
from tests.integration.api.scene import a_job

EMBEDDED = Settings()
SHARED = Settings(database_url="postgresql://u:p@db/custody")
QUEUED = Settings(redis_url="redis://queue")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_on_loopback_embedded_no_key_is_needed(host):
    assert server.is_open_to(host, settings=EMBEDDED, has_credentials=False, is_unsafe=False)


@pytest.mark.parametrize(
    ("host", "settings"),
    [
        ("0.0.0.0", EMBEDDED),
        ("10.0.0.1", EMBEDDED),
        ("::", EMBEDDED),
        ("", EMBEDDED),
        ("localhost.example", EMBEDDED),
        ("127.0.0.1", SHARED),
        ("localhost", QUEUED),
    ],
)
def test_anywhere_else_somebody_must_have_a_key_or_say_that_none_is_wanted(host, settings):
    with pytest.raises(InvalidRequest, match="open to everybody"):
        server.is_open_to(host, settings=settings, has_credentials=False, is_unsafe=False)
    assert not server.is_open_to(host, settings=settings, has_credentials=True, is_unsafe=False)
    assert not server.is_open_to(host, settings=settings, has_credentials=True, is_unsafe=True)
    assert server.is_open_to(host, settings=settings, has_credentials=False, is_unsafe=True)


def test_a_server_beyond_loopback_serves_those_with_a_key_only(app):
    with pytest.raises(InvalidRequest, match="nobody has a key"):
        server.make_api(app, host="0.0.0.0")
    _, whole = keys.issue(
        app.desk, principal="p", roles=["submitter"], tenant_id="local", caller=owner("ada")
    )
    with TestClient(server.make_api(app, host="0.0.0.0")) as client:
        assert client.get("/v1/jobs").status_code == 401
        for wrong in (
            "Bearer",
            "Bearer cst_0_0",
            "Basic eDp5",
            f"Token {whole}",
            whole,
            f"Bearer {whole}0",
            "Bearer cst_%80_x",
        ):
            assert client.get("/v1/jobs", headers={"Authorization": wrong}).status_code == 401, wrong
        assert client.get("/v1/jobs", headers={"Authorization": f"bearer {whole}"}).status_code == 200
        # Of the health of the server anybody may know.
        assert client.get("/healthz").status_code == 200


def test_a_revoked_key_is_refused_with_the_next_request(app):
    row, whole = keys.issue(
        app.desk, principal="p", roles=["submitter"], tenant_id="local", caller=owner("ada")
    )
    headers = {"Authorization": f"Bearer {whole}"}
    with TestClient(server.make_api(app, host="0.0.0.0")) as client:
        assert client.get("/v1/jobs", headers=headers).status_code == 200
        keys.revoke(app.desk, row.key_id, caller=owner("ada"))
        assert client.get("/v1/jobs", headers=headers).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Host": "rebound.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"X-Forwarded-For": "10.0.0.1"},
        {"Forwarded": "for=10.0.0.1"},
    ],
)
def test_no_page_of_another_site_and_nobody_behind_a_proxy_is_served_without_a_key(app, headers):
    with TestClient(server.make_api(app, host="127.0.0.1"), base_url="http://127.0.0.1") as client:
        assert client.get("/v1/jobs").status_code == 200
        answer = client.post("/v1/jobs", json=a_job(), headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (403, "denied")
    assert app.jobs() == []


def test_a_server_lets_those_who_are_being_answered_finish(app, monkeypatch):
    import threading

    from controlplane.handlers import queries

    begun, go_on = threading.Event(), threading.Event()
    job = queries.job

    def slow(*args, **kwargs):
        begun.set()
        assert go_on.wait(10)
        return job(*args, **kwargs)

    answers = []
    with server.serving(app) as address:
        job_id = httpx2.post(f"{address}/v1/jobs", json=a_job()).json()["job_id"]
        monkeypatch.setattr(queries, "job", slow)
        asking = threading.Thread(target=lambda: answers.append(httpx2.get(f"{address}/v1/jobs/{job_id}")))
        asking.start()
        assert begun.wait(10)
        threading.Timer(0.2, go_on.set).start()
    asking.join()

    assert answers[0].status_code == 200
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(f"{address}/healthz")


def test_a_place_that_is_taken_is_said(app):
    with server.serving(app) as address:
        port = int(address.rpartition(":")[2])
        with pytest.raises(InvalidRequest, match="--port"), server.serving(app, port=port):
            pass


def test_a_server_that_cannot_know_its_clock_says_so(app, monkeypatch):
    import time

    now = time.time
    with TestClient(server.make_api(app, host="127.0.0.1"), base_url="http://127.0.0.1") as client:
        assert client.get("/readyz").json()["checks"]["store"] == "ok"
        monkeypatch.setattr("controlplane.api.routes_health.time.time", lambda: now() + 60)
        late = client.get("/readyz")

    assert late.status_code == 503
    assert "differ by" in late.json()["checks"]["store"]


def test_settings_of_limits_are_kept(settings, app):
    app.settings = replace(settings, max_body_bytes=100)
    with TestClient(server.make_api(app, host="127.0.0.1"), base_url="http://127.0.0.1") as client:
        assert client.post("/v1/jobs", json=a_job()).status_code == 413


def test_workers_of_other_machines_speak_to_the_same_server(app):
    from rlm_worker.contracts import PROTOCOL_VERSION

    _, whole = keys.issue(app.desk, principal="w", roles=["worker"], tenant_id="", caller=owner("ada"))
    hello = {"worker_id": "host/b/1/1", "protocols": [PROTOCOL_VERSION], "host": "host", "slots": 1}
    with server.serving(app) as address:
        without = httpx2.post(f"{address}/v1/gateway/hello", json=hello)
        known = httpx2.post(
            f"{address}/v1/gateway/hello", json=hello, headers={"Authorization": f"Bearer {whole}"}
        )

    # Also where people need no key.
    assert without.status_code == 401
    assert known.status_code != 401


def test_a_queue_that_does_not_answer_is_said(app):
    from tests.servers import valkey_url

    for url, status in ((valkey_url(), 200), ("redis://127.0.0.1:1", 503)):
        app.settings = replace(app.settings, redis_url=url)
        with TestClient(server.make_api(app, host="127.0.0.1", is_unsafe=True)) as client:
            ready = client.get("/readyz", headers={"Host": "127.0.0.1"})
        assert ready.status_code == status
        assert (ready.json()["checks"]["queue"] == "ok") is (status == 200)
