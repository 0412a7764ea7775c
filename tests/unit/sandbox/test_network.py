"""The way out of a sandbox: what may be asked, where it may go, and what comes back, all bounded by the host."""

import asyncio
import base64
import gzip
import ipaddress
import shutil
import ssl
import subprocess
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import Network, NetworkRefused, PolicyError, Proxy
from sandbox.addresses import BadAddress, canonical_host, is_public, plain_address, target

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


# ---------------------------------------------------------------- scenery


class Server:
    """A real server on loopback that says what it is told to, and keeps what it heard."""

    def __init__(self, answer: bytes, *, then_hang: bool = False, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.then_hang = then_hang
        self.tls = tls
        self.heard: list[bytes] = []
        self.port = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")]
            body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
            self.heard.append(head + body)
            writer.write(self.answer)
            await writer.drain()
            if self.then_hang:
                await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def running(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()


def resolving(*addresses: str):
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return list(addresses)

    resolve.asked = asked
    return resolve


def ask(server: Server, *, path: str = "/", allow=None, **payload):
    """One request to a server on 127.0.0.1, allowed by its address."""
    options = {
        key: payload.pop(key) for key in ("seconds", "response_bytes", "request_bytes") if key in payload
    }

    async def story():
        async with server.running():
            names = allow or (f"127.0.0.1:{server.port}",)
            proxy = Proxy(Network(allow=names, **options))
            url = payload.pop("url", f"http://127.0.0.1:{server.port}{path}")
            return await asyncio.wait_for(proxy.answer({"url": url, **payload}), 10)

    return asyncio.run(story())


def refusal(url: str, *, allow: tuple[str, ...], resolve=None, **payload) -> str:
    async def story() -> str:
        proxy = Proxy(Network(allow=allow), resolve=resolve or resolving("93.184.216.34"))
        with pytest.raises(NetworkRefused) as refused:
            await asyncio.wait_for(proxy.answer({"url": url, **payload}), 10)
        return str(refused.value)

    return asyncio.run(story())


def body_of(answer) -> bytes:
    return base64.b64decode(answer["body"])


# ---------------------------------------------------------------- an ordinary exchange


def test_a_request_to_an_allowed_host_is_made_and_answered():
    server = Server(b"HTTP/1.1 201 Made\r\nX-A: 1\r\nSet-Cookie: a=b\r\nContent-Length: 2\r\n\r\nhi")

    answer = ask(
        server,
        path="/a?b=c",
        method="POST",
        headers=[["X-Mine", "yes"]],
        body=base64.b64encode(b"data").decode(),
    )

    assert (answer["status"], answer["reason"], body_of(answer)) == (201, "Made", b"hi")
    assert ["Set-Cookie", "a=b"] in answer["headers"]
    assert answer["address"] == f"127.0.0.1:{server.port}"
    (heard,) = server.heard
    assert heard.startswith(f"POST /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode())
    assert b"\r\nX-Mine: yes\r\n" in heard
    assert b"\r\nContent-Length: 4\r\n" in heard
    assert heard.endswith(b"\r\n\r\ndata")


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n0\r\nT: 1\r\n\r\n",
            b"hello",
        ),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil closed", b"until closed"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"hello"),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 9\r\n\r\n", b""),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", b"hi"),
    ],
)
def test_every_way_to_end_an_answer_is_understood(answer, body):
    assert body_of(ask(Server(answer))) == body


def test_a_head_request_has_no_body_to_wait_for():
    answer = ask(Server(b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n", then_hang=True), method="HEAD")

    assert body_of(answer) == b""


def test_a_redirect_is_an_answer_and_is_not_followed():
    server = Server(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n")

    answer = ask(server)

    assert answer["status"] == 302
    assert len(server.heard) == 1


def test_no_proxy_of_the_environment_and_no_netrc_is_used(monkeypatch, tmp_path):
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password canary\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    server = Server(OK)

    assert body_of(ask(server)) == b"hello"
    assert b"canary" not in server.heard[0]
    assert b"authorization" not in server.heard[0].lower()


# ---------------------------------------------------------------- where it may go


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/",
        "HTTP://EXAMPLE.ORG/",
        "http://example.org./",
        "http://example.org:80/",
        "http://example.org",
        "http://example.org?q",
        "http://\uff45\uff58\uff41\uff4d\uff50\uff4c\uff45.org/",
    ],
)
def test_spellings_of_an_allowed_host_mean_that_host(url):
    assert "10.0.0.1" in refusal(url, allow=("Example.ORG.:80",), resolve=resolving("10.0.0.1"))


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org:8080/",
        "https://example.org/",
        "http://www.example.org/",
        "http://example.org.evil.test/",
        "http://evil.test/?example.org:80",
        "http://evil.test/#@example.org/",
        "http://xn--example-.org/",
    ],
)
def test_another_host_or_port_is_refused(url):
    told = refusal(url, allow=("example.org:80",))

    assert "allow list" in told or "cannot be used" in told


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/",
        "file:///etc/passwd",
        "gopher://example.org:80/",
        "//example.org/",
        "example.org/",
        "http:example.org",
        "http:/example.org/",
        "http:///example.org/",
        "http://",
        "http://user@example.org/",
        "http://user:pw@example.org/",
        "http://example.org@evil.test/",
        "http://evil.test\\@example.org/",
        "http://example.org\\.evil.test/",
        "http://example.org:0/",
        "http://example.org:080/",
        "http://example.org:65536/",
        "http://example.org:99999999/",
        "http://example.org:/",
        "http://example.org:80:80/",
        "http://example.org:\uff18\uff10/",
        "http://exam ple.org/",
        "http://example.org/a b",
        "http://example.org/\r\nX: y",
        "http://example.org/a\tb",
        "http://example.org/\x00",
        "http://example.org/é",
        "http://example.org\r\n.evil.test/",
        " http://example.org/",
        "http://example.org/\n",
        "http://example..org/",
        "http://.example.org/",
        "http://example.org../",
        "http://-example.org/",
        "http://%65xample.org/",
        "http://example.org%00.evil.test/",
        "http://example.org%2eevil.test/",
        "http://[example.org]/",
        "http://[::1/",
        "http://::1/",
        "http://[::1%lo]/",
        "http://[127.0.0.1]/",
        "http://[v1.x]/",
        "http://" + "a" * 300 + ".org/",
        "http://example.org/" + "a" * 9_000,
        "http://example.org℀evil.test/",
        "http://a。。b/",
        None,
        7,
        ["http://example.org/"],
    ],
)
def test_a_url_that_could_be_read_in_two_ways_is_refused(url):
    told = refusal(url, allow=("example.org:80",))

    assert "cannot be used" in told or "must be text" in told or "allow list" in told
    assert told.isprintable()


@pytest.mark.parametrize(
    "host",
    [
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "127.1",
        "127.0.1",
        "127.0.0.01",
        "127.0.0.1.1",
        "256.0.0.1",
        "1.2.3",
        "0",
        "0x",
        "foo.0x7f",
        "example.1",
    ],
)
def test_odd_spellings_of_ipv4_addresses_are_refused_and_not_looked_up(host):
    resolve = resolving("127.0.0.1")

    told = refusal(f"http://{host}/", allow=("127.0.0.1:80", "example.org:80"), resolve=resolve)

    assert "four decimal numbers" in told
    assert resolve.asked == []
    with pytest.raises(PolicyError, match="four decimal numbers"):
        Network(allow=(f"{host}:80",))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("127.0.0.1.", "127.0.0.1"),
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
        ("[::ffff:7f00:1]", "127.0.0.1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("[2001:DB8::0001]", "2001:db8::1"),
        ("\uff11\uff12\uff17.0.0.1", "127.0.0.1"),
        ("127。0。0。1", "127.0.0.1"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("LOCALHOST.", "localhost"),
    ],
)
def test_a_host_has_one_spelling(written, meant):
    assert canonical_host(written) == meant


CLOSED = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255"),
    *("192.168.1.1", "169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.192", "198.18.0.1"),
    *("192.0.2.1", "198.51.100.1", "203.0.113.1", "192.88.99.1", "224.0.0.1", "239.255.255.255"),
    *("240.0.0.1", "255.255.255.255", "168.63.129.16"),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "::ffff:10.0.0.1"),
    *("::ffff:169.254.169.254", "::10.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "2002:0a00:0001::1"),
    *("2001::1", "2001:db8::1", "fec0::1", "100::1", "3fff::1", "5f00::1"),
]


@pytest.mark.parametrize("address", CLOSED)
def test_a_name_that_leads_to_a_closed_address_is_refused(address):
    told = refusal("http://example.org/", allow=("example.org:80",), resolve=resolving(address))

    assert "private, local or reserved" in told


@pytest.mark.parametrize("address", CLOSED)
def test_one_closed_address_among_public_ones_closes_the_name(address):
    told = refusal(
        "http://example.org/", allow=("example.org:80",), resolve=resolving("93.184.216.34", address)
    )

    assert "private, local or reserved" in told


@pytest.mark.parametrize(
    "address",
    [
        *("93.184.216.34", "8.8.8.8", "1.1.1.1", "172.32.0.1", "100.128.0.1"),
        *("2606:2800:220:1::1", "2a00:1450::1", "64:ff9b::8.8.8.8"),
    ],
)
def test_addresses_of_the_open_internet_are_open(address):
    assert is_public(plain_address(address))


@given(st.ip_addresses())
def test_nothing_that_python_calls_private_is_open(address):
    plain = plain_address(str(address))
    # Python counts the translated addresses of NAT64 as global whatever they carry.
    if is_public(plain) and plain not in ipaddress.ip_network("64:ff9b::/96"):
        assert plain.is_global
        assert not any((plain.is_private, plain.is_loopback, plain.is_link_local, plain.is_multicast))


def test_a_private_address_is_reached_when_it_stands_on_the_list_itself():
    assert body_of(ask(Server(OK))) == b"hello"


def test_localhost_is_reached_when_it_stands_on_the_list_and_is_not_looked_up():
    server = Server(OK)

    async def story():
        async with server.running():
            resolve = resolving("93.184.216.34")
            proxy = Proxy(Network(allow=(f"localhost:{server.port}",)), resolve=resolve)
            answer = await proxy.answer({"url": f"http://localhost:{server.port}/"})
            return answer, resolve.asked

    answer, asked = asyncio.run(story())

    assert answer["address"] == f"127.0.0.1:{server.port}"
    assert asked == []


def test_localhost_on_the_list_does_not_open_its_address_nor_its_names():
    for url in ("http://127.0.0.1:81/", "http://[::1]:81/", "http://a.localhost:81/"):
        assert "allow list" in refusal(url, allow=("localhost:81",))


def test_a_name_may_lead_to_a_private_address_that_stands_on_the_list_with_the_same_port():
    server = Server(OK)

    async def story(*allow: str):
        async with server.running():
            names = tuple(entry.format(port=server.port) for entry in allow)
            proxy = Proxy(Network(allow=names), resolve=resolving("127.0.0.1"))
            return await proxy.answer({"url": f"http://inner.test:{server.port}/"})

    assert body_of(asyncio.run(story("inner.test:{port}", "127.0.0.1:{port}"))) == b"hello"
    with pytest.raises(NetworkRefused, match="must stand on the allow list itself"):
        asyncio.run(story("inner.test:{port}", "127.0.0.1:1"))


def test_a_name_that_changes_its_mind_is_connected_to_as_it_was_checked():
    """DNS rebinding: an allowed address when it is checked, another ever after."""
    server = Server(OK)
    asked: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.2"] if len(asked) == 1 else ["127.0.0.1"]

    async def story() -> None:
        async with server.running():
            allow = (f"rebind.test:{server.port}", f"127.0.0.2:{server.port}")
            proxy = Proxy(Network(allow=allow), resolve=rebinding)
            url = f"http://rebind.test:{server.port}/"
            with pytest.raises(NetworkRefused, match="cannot be connected"):
                await proxy.answer({"url": url})  # nobody listens on 127.0.0.2
            assert asked == ["rebind.test"]
            with pytest.raises(NetworkRefused, match="private, local or reserved"):
                await proxy.answer({"url": url})

    asyncio.run(story())
    assert server.heard == []


def test_a_name_that_cannot_be_looked_up_says_so():
    async def nowhere(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    assert "could not be looked up" in refusal("http://a.test/", allow=("a.test:80",), resolve=nowhere)
    assert "could not be looked up" in refusal("http://a.test/", allow=("a.test:80",), resolve=resolving())


def test_without_an_allow_list_the_network_is_off():
    assert "the network is off" in refusal("http://example.org/", allow=())


@pytest.mark.parametrize(
    "entry",
    ["example.org", "example.org:0", "*:80", "http://a:80", "a b:80", ":80", "[::1]", "::1:80", "a:٨٠"],
)
def test_a_list_with_something_else_on_it_is_refused_at_once(entry):
    with pytest.raises(PolicyError, match="cannot be used"):
        Network(allow=(entry,))


# ---------------------------------------------------------------- what may be asked


@pytest.mark.parametrize(
    "payload",
    [
        {"method": "CONNECT"},
        {"method": "TRACE"},
        {"method": "get"},
        {"method": "GET / HTTP/1.1\r\nX: y\r\n\r\nGET"},
        {"method": 1},
        {"headers": [["X", "a\r\nHost: evil"]]},
        {"headers": [["X", "a\nb"]]},
        {"headers": [["X", "a\0b"]]},
        {"headers": [["X\r\nY", "a"]]},
        {"headers": [["X:", "a"]]},
        {"headers": [["", "a"]]},
        {"headers": [["X", "\u2028"]]},
        {"headers": [["X"]]},
        {"headers": [["X", "a", "b"]]},
        {"headers": [["X", 1]]},
        {"headers": {"X": "a"}},
        {"headers": "X: a"},
        {"headers": [["X", "a"]] * 101},
        {"headers": [["X", "a" * 20_000]] * 2},
        {"headers": [["Host", "evil.test"]]},
        {"headers": [["hOST", "evil.test"]]},
        {"headers": [["Content-Length", "0"]]},
        {"headers": [["Transfer-Encoding", "chunked"]]},
        {"headers": [["Connection", "keep-alive"]]},
        {"headers": [["Upgrade", "websocket"]]},
        {"headers": [["Proxy-Authorization", "x"]]},
        {"body": "not base64!"},
        {"body": "YQ"},
        {"body": 5},
        {"body": "A" * 3_000_000},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": True},
        {"timeout": "1"},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"follow": True},
    ],
)
def test_a_malformed_request_is_refused_before_anything_is_looked_up(payload):
    resolve = resolving("93.184.216.34")

    told = refusal("http://example.org/", allow=("example.org:80",), resolve=resolve, **payload)

    assert resolve.asked == []
    assert told.isprintable()


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["method", "url", "headers", "body", "timeout", "x"]), json, max_size=6)
)
def test_no_payload_at_all_gets_past_the_checks_or_breaks_them(payload):
    async def story() -> None:
        with pytest.raises(NetworkRefused):
            await Proxy(Network(allow=("example.org:80",)), resolve=resolving("10.0.0.1")).answer(payload)

    asyncio.run(story())


@given(st.text(max_size=40))
def test_no_text_breaks_the_reading_of_urls(text):
    for url in (text, f"http://{text}/", f"https://example.org{text}"):
        try:
            found = target(url)
        except BadAddress:
            continue
        assert found.path.isascii()
        assert found.path.isprintable()
        assert canonical_host(
            f"[{found.endpoint.host}]" if ":" in found.endpoint.host else found.endpoint.host
        )


# ---------------------------------------------------------------- what comes back


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n", "more than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n", "clearly"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "clearly"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", "clearly"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n", "clearly"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "clearly"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n", "more than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", "chunk"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
            "longer than it says",
        ),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"64\r\n" + b"a" * 100, "ended early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 5_000, "more than 1000"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "ended early"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"a" * 100_000, "more than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 300 + b"\r\n", "headers"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", "longer than"),
        (b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\nno header\r\n\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\nX: a\0b\r\n\r\n", "malformed"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 50, "interim"),
        (b"HTTP/2 200\r\n\r\n", "no HTTP/1.1"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "no HTTP/1.1"),
        (b"", "ended early"),
    ],
)
def test_an_answer_that_is_too_much_or_unclear_is_not_taken(answer, told):
    with pytest.raises(NetworkRefused, match=told):
        ask(Server(answer), response_bytes=1_000)


def test_a_compressed_bomb_is_handed_over_as_it_is():
    bomb = gzip.compress(b"\0" * 50_000_000)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {len(bomb)}\r\n\r\n".encode()

    assert body_of(ask(Server(head + bomb))) == bomb


@pytest.mark.parametrize(
    "started", [b"", b"HTTP/1.1 200 OK\r\nX", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"]
)
def test_a_server_that_never_ends_is_left_at_the_time_limit(started):
    with pytest.raises(NetworkRefused, match=r"within 0\.2 seconds"):
        ask(Server(started, then_hang=True), seconds=0.2)


def test_a_request_may_shorten_the_time_and_not_lengthen_it():
    with pytest.raises(NetworkRefused, match=r"within 0\.1 seconds"):
        ask(Server(b"", then_hang=True), timeout=0.1)
    with pytest.raises(NetworkRefused, match=r"within 0\.2 seconds"):
        ask(Server(b"", then_hang=True), timeout=60, seconds=0.2)


def test_a_lookup_that_never_ends_is_left_at_the_time_limit():
    async def never(host: str, port: int) -> list[str]:
        await asyncio.sleep(60)
        return []

    async def story() -> None:
        with pytest.raises(NetworkRefused, match="did not answer"):
            await Proxy(Network(allow=("a.test:80",), seconds=0.1), resolve=never).answer(
                {"url": "http://a.test/"}
            )

    asyncio.run(story())


def test_a_closed_port_says_that_it_is_closed():
    assert "cannot be connected to" in refusal("http://127.0.0.1:1/", allow=("127.0.0.1:1",))


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate with")
    home = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-days", "2", "-subj", "/CN=web.test", "-addext", "subjectAltName=DNS:web.test,IP:127.0.0.1"),
            *("-keyout", str(home / "key.pem"), "-out", str(home / "cert.pem")),
        ],
        check=True,
        capture_output=True,
        timeout=30,
    )
    return home


def over_tls(certificate, host: str, *, is_trusted: bool):
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    trusting = ssl.create_default_context(cafile=certificate / "cert.pem") if is_trusted else None
    server = Server(OK, tls=serving)

    async def story():
        async with server.running():
            allow = (f"{host}:{server.port}", f"127.0.0.1:{server.port}")
            proxy = Proxy(Network(allow=allow), resolve=resolving("127.0.0.1"), tls=trusting)
            return await asyncio.wait_for(proxy.answer({"url": f"https://{host}:{server.port}/"}), 10)

    return asyncio.run(story())


@pytest.mark.parametrize("host", ["web.test", "127.0.0.1"])
def test_tls_is_spoken_to_a_host_with_a_trusted_certificate(certificate, host):
    assert body_of(over_tls(certificate, host, is_trusted=True)) == b"hello"


def test_a_certificate_of_nobody_is_not_trusted(certificate):
    with pytest.raises(NetworkRefused, match="no trusted connection"):
        over_tls(certificate, "web.test", is_trusted=False)


def test_a_certificate_for_another_name_is_not_trusted(certificate):
    with pytest.raises(NetworkRefused, match="no trusted connection"):
        over_tls(certificate, "other.test", is_trusted=True)


def test_tls_to_a_server_that_speaks_none_is_refused():
    server = Server(OK)

    async def story():
        async with server.running():
            proxy = Proxy(Network(allow=(f"127.0.0.1:{server.port}",), seconds=2))
            return await proxy.answer({"url": f"https://127.0.0.1:{server.port}/"})

    with pytest.raises(NetworkRefused, match=r"no trusted connection|did not answer"):
        asyncio.run(story())
