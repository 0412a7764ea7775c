"""The core without a server: what is sent again and when, how answers and streams are read, where keys may go."""

import inspect
import json
import stat

import httpx2
import pytest

from controlplane.api.bodies import Problem
from controlplane.client import AsyncClient, Client, Patience
from controlplane.client.calls import seconds_of
from controlplane.client.errors import (
    BadRequest,
    Busy,
    ClientError,
    Damaged,
    ServerFailed,
    Unreachable,
    error_of,
)
from controlplane.client.profiles import Profile, keep_profile, profile_of, profiles
from controlplane.client.streams import Following
from controlplane.client.verbs import Listing, Verb, Verbs
from controlplane.errors import ControlPlaneError

WHO = {"name": "ada", "tenant_id": None, "roles": ["admin"], "capabilities": []}


class Script:
    """A server that gives these answers, one after the other; an exception breaks the connection."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.sent = []
        self.slept = []

    def __call__(self, request):
        self.sent.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, **more):
        return Client(
            "http://127.0.0.1:1", transport=httpx2.MockTransport(self), sleep=self.slept.append, **more
        )


def good(body=None):
    return httpx2.Response(200, json=WHO if body is None else body)


def bad(status, **more):
    headers = more.pop("headers", {})
    problem = {"type": "x", "title": "t", "status": status, "detail": "what happened", "code": "c", **more}
    return httpx2.Response(status, json=problem, headers=headers)


def test_a_busy_server_is_asked_again_when_it_says():
    script = Script(bad(429, headers={"Retry-After": "3"}), bad(503, headers={"Retry-After": "1"}), good())

    assert script.client().whoami().name == "ada"
    assert script.slept == [3.0, 1.0]


def test_a_server_that_asks_for_too_much_time_is_not_waited_for():
    script = Script(bad(503, headers={"Retry-After": "3600"}))

    with pytest.raises(Busy) as refused:
        script.client().whoami()
    assert refused.value.retry_after == 3600
    assert script.slept == []


def test_retries_are_bounded():
    script = Script(*[bad(503) for _ in range(9)])

    with pytest.raises(Busy):
        script.client(patience=Patience(retries=3)).whoami()
    assert len(script.sent) == 4
    assert script.slept == sorted(script.slept)


def test_a_broken_connection_is_repaired_and_the_key_of_the_request_stays_the_same():
    script = Script(httpx2.ReadError("cut"), bad(404))

    with pytest.raises(ClientError, match="what happened"):
        script.client().stop("job_x")
    keys = {request.headers["Idempotency-Key"] for request in script.sent}
    assert len(script.sent) == 2
    assert len(keys) == 1


def test_what_cannot_be_repeated_is_not_sent_twice():
    from controlplane.client.file_calls import send_piece

    script = Script(httpx2.ReadError("cut"), good())

    with pytest.raises(Unreachable):
        script.client().do(send_piece("up", b"x", offset=0))
    assert len(script.sent) == 1


def test_a_defect_of_the_server_is_not_asked_again():
    script = Script(bad(500, error_id="e1"))

    with pytest.raises(ServerFailed, match="e1"):
        script.client().whoami()
    assert len(script.sent) == 1


def test_a_redirect_is_not_followed_with_the_key():
    script = Script(httpx2.Response(302, headers={"Location": "http://elsewhere/"}))

    with pytest.raises(ClientError, match="elsewhere"):
        script.client(key="cst_a_b").whoami()
    assert len(script.sent) == 1


def test_what_is_no_custody_is_said_to_be_none():
    script = Script(httpx2.Response(200, text="<html>"))

    with pytest.raises(ServerFailed, match="custody doctor"):
        script.client().whoami()


def test_every_status_of_a_refusal_is_an_error_of_the_control_plane():
    for status in (400, 401, 403, 404, 405, 409, 410, 412, 413, 415, 422, 428, 429, 500, 502, 503, 504):
        error = error_of(status, Problem(type="x", title="t", status=status, code="c"))
        assert isinstance(error, ControlPlaneError)
        assert str(error)
    assert isinstance(error_of(500, Problem(type="x", title="t", status=500, code="tampered")), Damaged)


def test_both_clients_offer_the_same():
    verbs = {name for name, value in vars(Verbs).items() if isinstance(value, Verb | Listing)}

    def own(kind):
        return {name for name in vars(kind) if not name.startswith("_")} - {"close", "aclose"}

    assert len(verbs) > 40
    assert own(Client) == own(AsyncClient)
    for name in ("follow", "download"):
        assert (
            inspect.signature(getattr(Client, name)).parameters
            == inspect.signature(getattr(AsyncClient, name)).parameters
        )


@pytest.mark.parametrize(
    ("address", "is_refused"),
    [
        ("http://127.0.0.1:8420", False),
        ("http://[::1]:8420", False),
        ("http://localhost", False),
        ("https://custody.example.org", False),
        ("http://custody.example.org", True),
        ("http://10.0.0.1", True),
        ("ftp://custody.example.org", True),
        ("https://me:secret@custody.example.org", True),
        ("custody.example.org", True),
    ],
)
def test_a_key_goes_over_no_network_that_anybody_reads(address, is_refused):
    if is_refused:
        with pytest.raises(BadRequest):
            Client(address, key="cst_a_b")
    else:
        Client(address, key="cst_a_b").close()


def test_retry_after_may_be_a_date():
    assert seconds_of("7") == 7.0
    assert seconds_of("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0
    assert seconds_of("soon") is None


def item(seq):
    at = "2026-01-01T00:00:00Z"
    return {"seq": seq, "kind": "x", "at": at, "event": {"kind": "x"}, "prev": "a", "hash": "b"}


def test_a_stream_is_put_together_from_lines():
    following = Following("job_x")
    lines = [
        "id: 0",
        "event: trace",
        f"data: {json.dumps(item(0))}",
        "",
        ": nothing new",
        "",
        "event: later",
        "data: {}",
        "",
    ]

    found = [update for line in lines if (update := following.feed(line)) is not None]

    assert [update.event.seq for update in found] == [0]
    assert following.call().headers["Last-Event-ID"] == "0"
    assert not following.is_over


def test_half_an_event_before_a_cut_is_asked_for_again():
    following = Following("job_x")
    for line in ("id: 0", "event: trace", f"data: {json.dumps(item(0))}", ""):
        following.feed(line)
    for line in ("id: 1", "event: trace", "data: {"):
        following.feed(line)

    call = following.call()
    update = None
    for line in ("id: 1", "event: trace", f"data: {json.dumps(item(1))}", ""):
        update = following.feed(line) or update

    assert call.headers["Last-Event-ID"] == "0"
    assert update.event.seq == 1


def test_a_follower_does_not_try_for_ever():
    following = Following("job_x")
    patience = Patience(retries=2)

    waits = [following.broken(None, patience=patience, chance=0.5) for _ in range(2)]

    assert waits == sorted(waits)
    with pytest.raises(Unreachable):
        following.broken(None, patience=patience, chance=0.5)


def test_profiles_are_private_and_found_by_name_and_address(tmp_path):
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    file = keep_profile("prod", Profile(server="https://c.example.org", key="cst_a_b"), env)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert profile_of("prod", env).key == "cst_a_b"
    assert profile_of("https://c.example.org/", env).key == "cst_a_b"
    assert profile_of("https://other.example.org", env).key is None
    assert profile_of("https://other.example.org", {**env, "CUSTODY_KEY": "cst_c_d"}).key == "cst_c_d"
    assert profile_of("prod", {**env, "CUSTODY_KEY": "cst_c_d"}).key == "cst_a_b"
    file.chmod(0o640)
    with pytest.raises(BadRequest, match="chmod 600"):
        profiles(env)


def test_the_client_imports_nothing_of_a_server():
    import subprocess
    import sys

    code = (
        "import sys, controlplane.client, controlplane.client.profiles\n"
        "found = {name.partition('.')[0] for name in sys.modules}\n"
        "assert not found & {'fastapi', 'starlette', 'sqlalchemy', 'uvicorn', 'alembic', 'dramatiq', 'psycopg'}, found\n"
        "ours = {name for name in sys.modules if name.startswith('controlplane.')}\n"
        "assert not any(name.startswith(('controlplane.adapters', 'controlplane.handlers', 'controlplane.bootstrap')) for name in ours)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
