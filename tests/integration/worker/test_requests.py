"""Requests of a job to the network: off unless its policy opens it, recorded, counted, and served again from the record."""

import asyncio
import http.server
import threading
from contextlib import contextmanager

import pytest

from rlm_worker.contracts.job import Budget, NetworkPolicy
from rlm_worker.replay import verify_replay
from tests.builders import a_spec
from tests.engine import QUICK, Ran, attempt, run_job
from tests.memory_gateway import MemoryGateway


class Counter(http.server.BaseHTTPRequestHandler):
    """Every page says how many came before it: an answer cannot be had twice."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        body = f"{self.path} {len(self.server.asked)}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


@contextmanager
def a_site():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Counter)
    server.asked = []
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server, f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def a_job(code: str, *allow: str, **fields):
    return a_spec(playbook=code, network_policy=NetworkPolicy(allow=allow), **fields)


def replayed(ran: Ran):
    return asyncio.run(verify_replay(ran.gateway.spec, ran.gateway.records, settings=QUICK))


@pytest.mark.requirement("S3-BOUND-19", "N3-SEC-3")
def test_the_network_of_a_job_is_off_by_default():
    code = "# %%\ntry:\n    fetch('http://127.0.0.1:1/')\nexcept NetworkRefused as error:\n    SUBMIT(answer=str(error))\n"

    ran = run_job(a_job(code))

    assert "the network is off in this sandbox" in ran.output["answer"]
    assert ran.of("host_call_finished") == []


@pytest.mark.requirement("S3-BOUND-20", "N3-SEC-6")
def test_a_request_stands_in_the_trace_with_its_answer_and_counts_as_a_host_call():
    with a_site() as (site, place):
        ran = run_job(a_job(f"# %%\nSUBMIT(answer=fetch('http://{place}/a').text)\n", place))

    (call,) = ran.of("host_call_finished")
    assert ran.output == {"answer": "/a 1"}
    assert (call.name, call.ok, call.request["url"], call.request["method"]) == (
        "network",
        True,
        f"http://{place}/a",
        "GET",
    )
    assert (call.answer["status"], call.answer["address"]) == (200, place)
    assert ran.result.usage.host_calls == 1
    assert ran.result.usage.output_bytes >= len(call.answer["body"])
    assert site.asked == ["/a"]


@pytest.mark.requirement("S3-BOUND-20", "N3-SEC-6")
def test_a_refused_request_stands_in_the_trace_too():
    code = "# %%\nfor _ in range(3):\n    try:\n        fetch('http://10.0.0.1/')\n    except NetworkRefused as error:\n        told = str(error)\nSUBMIT(answer=told)\n"

    ran = run_job(a_job(code, "example.org:80"))

    calls = ran.of("host_call_finished")
    assert [(call.ok, call.request["url"]) for call in calls] == [(False, "http://10.0.0.1/")] * 3
    assert "10.0.0.1:80 is not on this sandbox's allow list (example.org:80)" in calls[0].error
    assert ran.result.usage.host_calls == 3
    assert replayed(ran).verified


def test_requests_are_bounded_by_the_budget_of_host_calls():
    with a_site() as (site, place):
        code = f"# %%\nfor n in range(9):\n    fetch(f'http://{place}/{{n}}')\n"
        ran = run_job(a_job(code, place, budget=Budget(max_host_calls=3)))

    assert (ran.result.failure_class, ran.result.limit) == ("budget_exhausted", "host_calls")
    assert len(site.asked) == 3


def test_what_comes_from_the_network_counts_as_output():
    with a_site() as (site, place):
        code = f"# %%\nfor n in range(99):\n    fetch(f'http://{place}/' + 'x' * 300)\n"
        ran = run_job(a_job(code, place, budget=Budget(max_output_bytes=2_000)))

    assert (ran.result.failure_class, ran.result.limit) == ("budget_exhausted", "output_bytes")
    assert len(site.asked) < 9


def test_a_replay_is_served_from_the_record_and_asks_nobody():
    code = (
        "# %%\nfirst, second = (fetch('http://{0}/same').text for _ in range(2))\nother = fetch('http://{0}/other').text\n"
        "# %%\nprint(first, second, other)\nSUBMIT(answer=second)\n"
    )
    with a_site() as (site, place):
        ran = run_job(a_job(code.format(place), place))
        before = list(site.asked)

        report = replayed(ran)

        assert site.asked == before
    assert ran.output == {"answer": "/same 2"}
    assert report.verified, report
    assert replayed(ran).verified  # and with nobody there at all


def test_the_next_attempt_does_not_ask_again():
    with a_site() as (site, place):
        code = f"# %%\nfirst = fetch('http://{place}/a').text\n# %%\nSUBMIT(answer=first + ' ' + fetch('http://{place}/b').text)\n"
        gateway = MemoryGateway(a_job(code, place))
        attempt(gateway)
        whole = list(gateway.records)
        cut = next(i for i, record in enumerate(whole) if record.kind == "cell_finished")

        again = MemoryGateway(gateway.spec)
        again.records = whole[: cut + 1]
        attempt(again)

    ran = Ran(again)
    assert site.asked == ["/a", "/b", "/b"]
    assert ran.output == {"answer": "/a 1 /b 3"}
    assert ran.result.usage.host_calls == 2
    assert ran.of("diverged") == []


@pytest.mark.parametrize("entry", ["example.org", "127.1:80", "*:80"])
def test_an_address_that_cannot_be_used_fails_the_job_before_it_starts(entry):
    ran = run_job(a_job("# %%\nSUBMIT(answer='x')\n", entry))

    assert (ran.result.status, ran.result.failure_class) == ("failed", "invalid_request")
    assert entry in ran.result.message
