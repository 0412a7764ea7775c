"""Who may speak to the gateway over HTTP, what they are told otherwise, and what they may not touch."""

import gzip
import hashlib
import http.client
import json
import secrets
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import zstandard

from controlplane.bootstrap import open_app
from controlplane.config import Settings
from controlplane.domain.commands import JobRequest
from controlplane.domain.identity import owner
from controlplane.handlers import keys
from rlm_worker.contracts import PROTOCOL_VERSION, Budget
from rlm_worker.contracts.gateway import (
    AwaitOrdersRequest,
    ChainRefused,
    Claimed,
    ClaimRequest,
    GatewayDown,
    HoldRefused,
    LeaseLost,
    NotClaimed,
    ReadTraceRequest,
    RecordRequest,
    RenewRequest,
)
from rlm_worker.contracts.job import PlaybookDriver
from rlm_worker.contracts.remote import EvidenceRequest, HandBackRequest, HelloRequest, WaitRequest
from rlm_worker.contracts.signature import fields_schema
from rlm_worker.contracts.trace import GENESIS, AttemptStarted, Hold, ModelAsked, NoProgress, link
from rlm_worker.remote.gateway import HttpGateway, NotAdmitted, TooLarge, WrongProtocol
from rlm_worker.remote.link import BadAddress, Server
from tests.gateway_server import GatewayServer, a_key


@pytest.fixture
def app(tmp_path):
    opened = open_app(Settings(home=tmp_path / "home", request_bytes=200_000))
    yield opened
    opened.close()


@pytest.fixture
def server(app):
    with GatewayServer(app) as serving:
        yield serving


@pytest.fixture
def connect(app, server):
    made: list[HttpGateway] = []

    def connect_with(key: str = "", **given) -> HttpGateway:
        made.append(
            HttpGateway(Server(url=server.url, key=key or a_key(app, **given)), least_poll_seconds=0.001)
        )
        return made[-1]

    yield connect_with
    for gateway in made:
        gateway.close()


def submit(app, **fields) -> str:
    request = JobRequest(
        task="Anything?",
        output_schema=fields_schema("answer: str"),
        budget=fields.pop("budget", Budget()),
        driver=PlaybookDriver(name="test", source="SUBMIT(answer='x')"),
        sub_model="nobody",
        **fields,
    )
    return app.submit(request).job_id


def claim(gateway, job_id: str, *, worker: str = "w") -> Claimed | NotClaimed:
    return gateway.claim(ClaimRequest(worker_id=worker, job_id=job_id, generation=1))


def hello(gateway, **fields):
    return gateway.hello(HelloRequest(**{"name": "host/1/abc", **fields}))


class TestKeys:
    def test_a_worker_is_known_by_its_key_and_the_name_it_gives(self, app, connect):
        key = a_key(app)

        said = hello(connect(key))

        assert said.worker_id == f"{key.split('_')[1]}/host/1/abc"
        assert said.lease_ttl_ms == 15_000

    def test_a_wrong_key_opens_nothing(self, app, connect):
        good = a_key(app)
        wrong = good[:-1] + ("0" if good[-1] != "0" else "1")
        job_id = submit(app)

        for ask in (hello, lambda gateway: claim(gateway, job_id)):
            with pytest.raises(NotAdmitted, match="key"):
                ask(connect(wrong))

        assert app.job(job_id).attempts == 0

    def test_a_revoked_key_is_refused_within_a_second_also_for_a_job_under_way(self, app, connect):
        key = a_key(app)
        gateway = connect(key)
        claimed = claim(gateway, submit(app))
        keys.revoke(app.desk, key.split("_")[1], caller=owner("ada"))

        deadline = time.monotonic() + 1.5
        with pytest.raises(NotAdmitted):  # noqa: PT012 - the first renewals may still pass
            while time.monotonic() < deadline:
                gateway.renew(RenewRequest(job_id=claimed.lease.job_id, fence=claimed.lease.fence))

    def test_a_key_of_another_role_does_not_work_on_jobs(self, connect):
        with pytest.raises(NotAdmitted, match="role worker"):
            hello(connect(roles=("admin", "operator", "submitter", "viewer", "approver")))

    def test_a_key_does_not_travel_in_clear_text_to_another_machine(self):
        with pytest.raises(BadAddress, match="clear text"):
            HttpGateway(Server(url="http://custody.example:8000", key="cst_a_b"))

    def test_a_server_that_is_not_there_is_down_and_says_where(self):
        gateway = HttpGateway(Server(url="http://127.0.0.1:9", key="cst_a_b"))

        with pytest.raises(GatewayDown, match=r"127\.0\.0\.1:9"):
            hello(gateway)


def a_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of a machine that nobody has heard of, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, private


def test_over_tls_only_a_server_with_a_trusted_certificate_and_the_right_name_is_spoken_to(app, tmp_path):
    certificate, private = a_certificate(tmp_path)
    with GatewayServer(app, ssl_certfile=certificate, ssl_keyfile=private) as server:
        given = {"key": a_key(app), "url": f"https://localhost:{server.port}"}
        trusting = HttpGateway(Server(**given, ca_file=certificate))

        assert hello(trusting).protocol == PROTOCOL_VERSION

        for stranger in (
            Server(**given),
            Server(**{**given, "url": f"https://127.0.0.1:{server.port}"}, ca_file=certificate),
        ):
            with pytest.raises(GatewayDown, match="certificate"):
                hello(HttpGateway(stranger))
        trusting.close()


class TestTenants:
    def test_a_key_of_a_tenant_claims_nothing_of_another_and_is_not_told_that_it_is_there(self, app, connect):
        job_id = submit(app, tenant_id="a")
        of_b = connect(tenant_id="b")

        assert claim(of_b, job_id) == claim(of_b, "job-nobody-knows").model_copy(update={"detail": job_id})
        assert isinstance(claim(connect(tenant_id="a"), job_id), Claimed)

    def test_a_key_of_a_tenant_is_offered_its_own_jobs_only(self, app, connect):
        mine, _ = submit(app, tenant_id="a"), submit(app, tenant_id="b")

        found = connect(tenant_id="a").wait(WaitRequest(worker_id="w", free=5, timeout_ms=5_000))

        assert [wake.job_id for wake in found.jobs] == [mine]

    def test_nothing_is_offered_where_nothing_is_ready(self, app, connect):
        submit(app, tenant_id="a")

        found = connect(tenant_id="b").wait(WaitRequest(worker_id="w", free=5, timeout_ms=100))

        assert found.jobs == ()


class TestFences:
    @pytest.mark.requirement("LESSON-6")
    def test_a_fence_of_another_credential_is_refused_whatever_is_asked(self, app, connect, tmp_path):
        (tmp_path / "seen.txt").write_text("secret")
        refs = app.stage([tmp_path / "seen.txt"])
        mine, thief = connect(), connect()
        claimed = claim(mine, submit(app, input_artifacts=refs))
        lease = {"job_id": claimed.lease.job_id, "fence": claimed.lease.fence}
        record = link(AttemptStarted(attempt=1, worker_id="w"), seq=0, at_ms=1, prev=GENESIS)

        for steal in (
            lambda: thief.renew(RenewRequest(**lease)),
            lambda: thief.record(RecordRequest(**lease, records=(record,))),
            lambda: thief.read_trace(ReadTraceRequest(**lease)),
            lambda: thief.await_orders(AwaitOrdersRequest(**lease, timeout_ms=10)),
            lambda: thief.evidence(refs[0].manifest_digest, EvidenceRequest(**lease, name="seen.txt")),
            lambda: thief.keep(*lease.values(), "a" * 64, b"x", offset=0, size=1),
        ):
            with pytest.raises(LeaseLost):
                steal()
        assert mine.renew(RenewRequest(**lease)).desired == "run"
        assert app.trace(claimed.lease.job_id) == []

    def test_evidence_that_the_leased_job_does_not_name_is_not_there(self, app, connect, tmp_path):
        (tmp_path / "seen.txt").write_text("secret")
        (ref,) = app.stage([tmp_path / "seen.txt"])
        gateway = connect()
        claimed = claim(gateway, submit(app))

        with pytest.raises(Exception, match="no evidence"):
            gateway.evidence(
                ref.manifest_digest,
                EvidenceRequest(job_id=claimed.lease.job_id, fence=claimed.lease.fence, name=ref.name),
            )

    def test_only_the_credential_of_a_worker_hands_its_jobs_back(self, app, connect):
        key = a_key(app)
        mine = connect(key)
        worker_id = hello(mine).worker_id
        claimed = claim(mine, submit(app), worker=worker_id)

        with pytest.raises(Exception, match="no worker"):
            connect().hand_back(HandBackRequest(worker_id=worker_id))
        assert mine.hand_back(HandBackRequest(worker_id=worker_id)) == 1

        with pytest.raises(LeaseLost):
            mine.renew(RenewRequest(job_id=claimed.lease.job_id, fence=claimed.lease.fence))


class TestWire:
    @pytest.mark.parametrize(("spoken", "hint"), [((0,), "update"), ((98, 99), "update")])
    def test_a_worker_of_another_protocol_is_told_so_in_words(self, connect, spoken, hint):
        with pytest.raises(WrongProtocol, match="speaks protocol"):
            hello(connect(), protocols=spoken)

    def test_a_worker_of_tomorrow_is_understood_as_far_as_it_has_to_be(self, app, server):
        body = {"protocols": [99], "shape": {"nobody": "knows"}}

        status, said = post(server, a_key(app), "hello", json.dumps(body).encode())

        assert (status, said["code"]) == (426, "protocol")
        assert "99" in said["detail"]

    def test_what_is_too_large_is_refused_packed_or_not(self, app, server):
        key, large = a_key(app), json.dumps({"x": "y" * 300_000}).encode()

        for body, coding in (
            (large, ""),
            (gzip.compress(large), "gzip"),
            (zstandard.ZstdCompressor().compress(large), "zstd"),
            (zstandard.ZstdCompressor().compress(b"\0" * (1 << 30)), "zstd"),
        ):
            status, said = post(server, key, "record", body, coding)
            assert (status, said["code"]) == (413, "too_large")

    @pytest.mark.parametrize(
        ("body", "coding"),
        [
            (b"", ""),
            (b"{", ""),
            (b"[]", ""),
            (b"{}", ""),
            (b"\xff\xfe", ""),
            (b"not packed", "gzip"),
            (b"not packed", "zstd"),
            (b'{"job_id": "j", "fence": 1, "records": 7}', ""),
            (b"[" * 100_000, ""),
        ],
    )
    def test_what_cannot_be_read_is_a_problem_and_no_traceback(self, app, server, body, coding):
        status, said = post(server, a_key(app), "record", body, coding)

        assert (status, said["code"]) == (422, "malformed")

    def test_an_unknown_coding_is_refused(self, app, server):
        assert post(server, a_key(app), "record", b"{}", "br")[0] == 415

    def test_half_a_character_of_a_model_survives_the_way_there_and_back(self, app, connect):
        gateway = connect()
        claimed = claim(gateway, submit(app))
        started = link(AttemptStarted(attempt=1, worker_id="w"), seq=0, at_ms=1, prev=GENESIS)
        odd = link(NoProgress(iteration=1, detail="half \udc80 é"), seq=1, at_ms=2, prev=started.hash)
        lease = {"job_id": claimed.lease.job_id, "fence": claimed.lease.fence}

        gateway.record(RecordRequest(**lease, records=(started, odd)))

        assert gateway.read_trace(ReadTraceRequest(**lease)).records == (started, odd)

    def test_a_group_that_is_longer_than_a_request_goes_in_parts(self, app, connect):
        gateway = connect()
        assert hello(gateway).max_request_bytes == 200_000
        claimed = claim(gateway, submit(app))
        records = [link(AttemptStarted(attempt=1, worker_id="w"), seq=0, at_ms=1, prev=GENESIS)]
        for seq in range(1, 9):
            event = NoProgress(iteration=seq, detail=str(seq) * 60_000)
            records.append(link(event, seq=seq, at_ms=seq, prev=records[-1].hash))
        lease = {"job_id": claimed.lease.job_id, "fence": claimed.lease.fence}

        answer = gateway.record(RecordRequest(**lease, records=tuple(records)))
        again = gateway.record(RecordRequest(**lease, records=tuple(records)))

        assert (answer.events, answer.head) == (again.events, again.head) == (9, records[-1].hash)
        assert list(gateway.read_trace(ReadTraceRequest(**lease)).records) == records

    def test_an_event_that_fits_no_request_is_refused(self, app, connect):
        gateway = connect()
        claimed = claim(gateway, submit(app))
        event = NoProgress(iteration=1, detail="".join(chr(97 + n % 26) for n in range(250_000)))
        record = link(event, seq=0, at_ms=1, prev=GENESIS)

        with pytest.raises(TooLarge):
            gateway.record(
                RecordRequest(job_id=claimed.lease.job_id, fence=claimed.lease.fence, records=(record,))
            )

    def test_a_hold_beyond_the_budget_and_a_broken_chain_are_the_gateways_own_errors(self, app, connect):
        gateway = connect()
        claimed = claim(gateway, submit(app, budget=Budget(max_tokens=10)))
        lease = {"job_id": claimed.lease.job_id, "fence": claimed.lease.fence}
        hold = Hold(input_tokens=1_000)
        asked = ModelAsked(iteration=1, ordinal=1, model="m", prompt_digest="a" * 64, hold=hold)

        with pytest.raises(HoldRefused):
            gateway.record(RecordRequest(**lease, records=(link(asked, seq=0, at_ms=1, prev=GENESIS),)))
        with pytest.raises(ChainRefused):
            gateway.record(RecordRequest(**lease, records=(link(asked, seq=5, at_ms=1, prev=GENESIS),)))


class TestWaiting:
    def test_three_hundred_who_wait_hold_no_threads_and_each_hears_its_own_order(self, app, server, connect):
        gateway = connect()
        leases = [claim(gateway, submit(app)).lease for _ in range(3)]
        before = threading.active_count()
        heard: list[str] = []
        sockets = [open_poll(server, gateway_key(gateway), leases[n % 3]) for n in range(300)]
        deadline = time.monotonic() + 20
        while server.service.lookout.waiting < 300 and time.monotonic() < deadline:
            time.sleep(0.01)
        waiting, threads = server.service.lookout.waiting, threading.active_count() - before

        ordered = time.monotonic()
        app.stop(leases[0].job_id, by="tester")
        for number, connection in enumerate(sockets):
            if number % 3 == 0:
                heard.append(json.loads(connection.getresponse().read())["desired"])
        took = time.monotonic() - ordered

        assert waiting == 300
        # The lookout's one, and the handlers' bounded number.
        assert threads <= 34
        assert heard == ["stop"] * 100
        assert took < 5
        for connection in sockets:
            connection.close()

    def test_a_server_that_is_closed_lets_go_of_all_who_wait(self, app, server, connect):
        answers = []
        gateway = connect()
        thread = threading.Thread(
            target=lambda: answers.append(gateway.wait(WaitRequest(worker_id="w", free=1, timeout_ms=30_000)))
        )
        thread.start()
        deadline = time.monotonic() + 10
        while not server.service.lookout.waiting and time.monotonic() < deadline:
            time.sleep(0.01)

        server.service.close()
        thread.join(5)

        assert [answer.jobs for answer in answers] == [()]


def gateway_key(gateway: HttpGateway) -> str:
    return gateway._link._headers["Authorization"].removeprefix("Bearer ")


def open_poll(server: GatewayServer, key: str, lease) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    request = AwaitOrdersRequest(job_id=lease.job_id, fence=lease.fence, timeout_ms=30_000)
    headers = {"Authorization": f"Bearer {key}"}
    connection.request("POST", "/v1/gateway/await_orders", request.model_dump_json(), headers)
    return connection


def post(server: GatewayServer, key: str, what: str, body: bytes, coding: str = "") -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    headers = {"Authorization": f"Bearer {key}", **({"Content-Encoding": coding} if coding else {})}
    connection.request("POST", f"/v1/gateway/{what}", body, headers)
    response = connection.getresponse()
    said = json.loads(response.read())
    assert response.headers["Content-Type"] == "application/problem+json"
    connection.close()
    return response.status, said


def test_the_server_of_the_api_serves_workers_too_and_answers_them_at_once(tmp_path):
    from controlplane.api.server import serving

    app = open_app(Settings(home=tmp_path / "home"))
    key = a_key(app)
    with serving(app) as url:
        gateway = HttpGateway(Server(url=url, key=key))
        assert hello(gateway).max_request_bytes == 64 << 20
        lease = claim(gateway, submit(app)).lease
        started = link(AttemptStarted(attempt=1, worker_id="w"), seq=0, at_ms=1, prev=GENESIS)
        # Longer than other requests to the API may be, also when it is packed.
        noise = secrets.token_hex(5_000_000)
        long = link(NoProgress(iteration=1, detail=noise), seq=1, at_ms=2, prev=started.hash)
        given = {"job_id": lease.job_id, "fence": lease.fence}
        assert gateway.record(RecordRequest(**given, records=(started, long))).events == 2
        assert gateway.keep(*given.values(), hashlib.sha256(b"x").hexdigest(), b"x", offset=0, size=1).is_kept

        taken = []
        for _ in range(9):
            began = time.monotonic()
            gateway.renew(RenewRequest(**given))
            taken.append(time.monotonic() - began)
        # Well below the 40 ms for which an acknowledgement may be held back.
        assert sorted(taken)[4] < 0.03
        waiting = threading.Thread(
            target=gateway.wait, args=(WaitRequest(worker_id="w", free=1, timeout_ms=30_000),)
        )
        waiting.start()
        ending = time.monotonic()
    waiting.join(5)
    assert time.monotonic() - ending < 5
    gateway.close()
    app.close()
