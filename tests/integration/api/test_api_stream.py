"""Following a job over a real server: every event once, also across an interruption; its end; and whoever is too slow."""

import json
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import httpx2
import pytest

from controlplane.api import server, stream
from controlplane.domain.identity import owner
from controlplane.handlers import keys
from tests.integration.api.scene import a_job
from tests.integration.controlplane.hands import Hands, answered, asked


@pytest.fixture
def base(app):
    with server.serving(app) as address:
        yield address


@contextmanager
def following(base, job_id, **headers):
    with (
        httpx2.Client(base_url=base, timeout=20) as client,
        client.stream("GET", f"/v1/jobs/{job_id}/stream", headers=headers) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield events(answer.iter_lines())


def events(lines):
    """Name, number and body of each event; a comment is an event without a name."""
    found = {}
    for line in lines:
        if line.startswith(":"):
            yield "", None, line
        elif line:
            name, _, value = line.partition(": ")
            found[name] = value
        elif found:
            yield found["event"], found.get("id"), json.loads(found["data"])
            found = {}


@pytest.fixture
def hands(app, base):
    job_id = httpx2.post(f"{base}/v1/jobs", json=a_job()).json()["job_id"]
    return Hands(gateway=app.gateway(), job_id=job_id)


def test_a_follower_sees_every_event_and_the_end(base, hands):
    with following(base, hands.job_id) as found:
        name, _, body = next(found)
        assert (name, body["state"]) == ("state", "queued")
        hands.work()
        seen = list(found)

    traced = [(number, body["seq"], body["kind"]) for name, number, body in seen if name == "trace"]
    assert [seq for _, seq, _ in traced] == [0, 1, 2, 3]
    assert [number for number, _, _ in traced] == ["0", "1", "2", "3"]
    assert [kind for *_, kind in traced][:2] == ["attempt_started", "cell_proposed"]
    assert (seen[-1][0], seen[-1][2]["state"]) == ("end", "succeeded")


def test_who_was_cut_off_goes_on_after_the_last_event(base, hands):
    hands.claim()
    hands.record(asked(0), answered(0), asked(1))
    with following(base, hands.job_id) as found:
        numbers = [number for number in (next(found)[1] for _ in range(2)) if number is not None]
    hands.record(answered(1))
    hands.settle()

    with following(base, hands.job_id, **{"Last-Event-ID": numbers[-1]}) as found:
        rest = [body["seq"] for name, _, body in found if name == "trace"]

    assert [int(number) for number in numbers] == [0, 1]
    assert rest == [2, 3]


def test_while_nothing_happens_the_connection_is_kept_alive(base, hands, monkeypatch):
    monkeypatch.setattr(stream, "HEARTBEAT_SECONDS", 0.05)
    with following(base, hands.job_id) as found:
        assert next(found)[0] == "state"
        assert next(found)[0] == ""


def test_many_followers_share_one_thread(base, hands):
    before = threading.active_count()
    with following(base, hands.job_id) as first:
        next(first)
        with following(base, hands.job_id) as second, following(base, hands.job_id) as third:
            next(second), next(third)
            names = [thread.name for thread in threading.enumerate()]
            assert names.count("followers") == 1
            hands.work()
            assert all(list(found)[-1][0] == "end" for found in (first, second, third))
    assert threading.active_count() - before <= 8


def test_who_does_not_take_what_is_sent_is_dropped_and_holds_nothing_up(app, base, hands, monkeypatch):
    monkeypatch.setattr(stream, "_SLOW_SECONDS", 0.3)
    hands.claim()
    hands.record(*(asked(ordinal) for ordinal in range(8)))
    ended = threading.Event()
    send = stream.EventStream._send

    async def noted(self, send_):
        try:
            await send(self, send_)
        finally:
            ended.set()

    monkeypatch.setattr(stream.EventStream, "_send", noted)
    monkeypatch.setattr(stream, "_event", lambda *_, **__: b": " + b"x" * 1_000_000 + b"\n\n")
    host, _, port = base.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.sendall(f"GET /v1/jobs/{hands.job_id}/stream HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        assert ended.wait(20)


def test_a_stream_ends_when_its_key_is_revoked(app, hands, monkeypatch):
    monkeypatch.setattr(stream, "_ASK_AGAIN_SECONDS", 0.0)
    row, whole = keys.issue(app.desk, principal="p", roles=["viewer"], tenant_id="local", caller=owner("ada"))
    with (
        server.serving(app) as address,
        following(address, hands.job_id, Authorization=f"Bearer {whole}") as found,
    ):
        assert next(found)[0] == "state"
        keys.revoke(app.desk, row.key_id, caller=owner("ada"))
        app.store.announce()
        assert list(found) == []


def test_a_server_that_ends_lets_its_followers_go(app, hands):
    with server.serving(app) as address:
        opened = following(address, hands.job_id)
        found = opened.__enter__()
        next(found)
        began = time.monotonic()
    assert list(found) == []
    opened.__exit__(None, None, None)
    assert time.monotonic() - began < replace(app.settings).drain_seconds


def test_a_job_that_is_not_there_cannot_be_followed(base):
    answer = httpx2.get(f"{base}/v1/jobs/job_x/stream")

    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
