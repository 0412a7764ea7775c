"""The network from inside: off unless a policy names a host, and then only through the host's own hands."""

import http.server
import json
import threading

import pytest

import sandbox
from sandbox import HostCall, Network, NetworkRefused, Policy, Proxy


class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/page")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif self.path == "/outside":
            self.send_response(302)
            self.send_header("Location", "http://169.254.169.254/latest/meta-data/")
            self.end_headers()
        elif self.path == "/missing":
            self.send_error(404)
        else:
            self._say({"path": self.path, "agent": self.headers.get("X-Agent", "")})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._say({"got": body.decode(), "kind": self.headers["Content-Type"]})

    def _say(self, value) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_) -> None:
        pass


@pytest.fixture(scope="module")
def pages():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def online(in_box, pages):
    """Run a cell in a sandbox that may reach the pages; gives its end and the requests it made."""

    def play(code: str, *, allow: tuple[str, ...] | None = None):
        network = Network(allow=(f"127.0.0.1:{pages}",) if allow is None else allow)
        proxy = Proxy(network)
        seen: list[HostCall] = []

        async def story(box) -> None:
            source = f"site = 'http://127.0.0.1:{pages}'\n{code}"
            async for event in box.session.execute(source, deadline_seconds=20):
                if isinstance(event, HostCall):
                    seen.append(event)
                    try:
                        await box.session.answer(event.call_id, await proxy.answer(event.payload))
                    except NetworkRefused as refusal:
                        await box.session.refuse(
                            event.call_id, error=refusal.guest_error, message=str(refusal)
                        )
                play.end = event

        in_box(story, network=network)
        return play.end, seen

    return play


@pytest.mark.requirement("S3-BOUND-19", "N3-SEC-3")
def test_without_a_policy_the_network_is_off_and_says_so(online):
    end, seen = online("fetch(site + '/page')", allow=())

    assert (end.outcome, end.error.type) == ("error", "NetworkRefused")
    assert "the network is off in this sandbox" in end.error.message
    assert seen == []


@pytest.mark.requirement("S3-BOUND-19", "N3-SEC-3")
def test_without_a_policy_urllib_says_so_too_and_sockets_stay_shut(online):
    end, _ = online(
        "import urllib.request, urllib.error, socket\n"
        "try:\n    urllib.request.urlopen(site)\nexcept urllib.error.URLError as error:\n    print(error)\n"
        "try:\n    socket.create_connection(('127.0.0.1', 80))\nexcept OSError:\n    print('no socket')",
        allow=(),
    )

    assert end.outcome == "ok", end
    assert "the network is off" in end.stdout
    assert "no socket" in end.stdout


def test_a_page_is_fetched_and_the_host_saw_the_request(online):
    end, seen = online(
        "r = fetch(site + '/päge?a=ü b', headers={'X-Agent': 'me'})\n"
        "print(r.status, r.ok, r.json(), r.headers['content-type'], r.text[:1], r)"
    )

    assert end.outcome == "ok", end
    assert end.stdout.startswith(
        "200 True {'path': '/p%C3%A4ge?a=%C3%BC%20b', 'agent': 'me'} application/json {"
    )
    assert [call.name for call in seen] == ["network"]
    assert seen[0].payload["method"] == "GET"


def test_data_makes_a_post(online):
    end, _ = online(
        "print(fetch(site, data={'a': 1}).json())\nprint(fetch(site, data='text', method='POST').json())"
    )

    assert end.stdout.splitlines() == [
        "{'got': '{\"a\": 1}', 'kind': 'application/json'}",
        "{'got': 'text', 'kind': 'text/plain; charset=utf-8'}",
    ]


def test_each_hop_of_a_redirect_is_asked_of_the_host_again(online):
    end, seen = online("print(fetch(site + '/moved').json()['path'])")

    assert end.stdout == "/page\n"
    assert len(seen) == 2


def test_a_redirect_to_a_place_that_is_not_allowed_ends_there(online):
    end, seen = online("fetch(site + '/outside')")

    assert end.error.type == "NetworkRefused"
    assert "169.254.169.254:80 is not on this sandbox's allow list" in end.error.message
    assert len(seen) == 2


def test_urllib_works_through_the_host(online):
    end, seen = online(
        "import json, urllib.request, urllib.error\n"
        "with urllib.request.urlopen(site + '/moved', timeout=5) as r:\n"
        "    print(r.status, json.load(r)['path'], r.headers['Content-Type'])\n"
        "print(urllib.request.urlopen(urllib.request.Request(site, data=b'x=1')).read().decode())\n"
        "try:\n    urllib.request.urlopen(site + '/missing')\nexcept urllib.error.HTTPError as error:\n    print(error.code)\n"
        "try:\n    urllib.request.urlopen('http://10.0.0.1/')\nexcept urllib.error.URLError as error:\n    print(error.reason)\n"
    )

    lines = end.stdout.splitlines()
    assert end.outcome == "ok", end
    assert lines[0] == "200 /page application/json"
    assert '"got": "x=1"' in lines[1]
    assert lines[2] == "404"
    assert "not on this sandbox's allow list" in lines[3]
    assert len(seen) == 5


def test_a_box_for_scripts_makes_the_requests_itself(pages):
    site = f"http://127.0.0.1:{pages}"
    with sandbox.open(Policy(network=Network(allow=(f"127.0.0.1:{pages}",)))) as box:
        assert box.run(f"fetch('{site}/moved').json()['path']").stdout == "'/page'\n"
        assert box.run("fetch('http://10.0.0.1/')").error.type == "NetworkRefused"


def test_a_call_that_is_forged_by_hand_is_checked_like_any_other(online):
    end, _ = online(
        "from sandbox.guest.calls import host_call\n"
        "for payload in ({}, {'url': 5}, {'url': site, 'headers': [['Host', 'x']]}, {'url': 'file:///etc/passwd'}):\n"
        "    try:\n        host_call('network', payload)\n    except NetworkRefused as error:\n        print('refused')\n"
    )

    assert end.stdout == "refused\n" * 4
