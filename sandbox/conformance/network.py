"""Cases: no listener of any kind can be reached, and none can be made."""

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sandbox.conformance.case import Stand, case, cases_of

_ABSTRACT = "custody-conformance"


@contextmanager
def _listeners() -> Iterator[tuple[dict[str, socket.socket], dict[str, Any]]]:
    """Real listeners on this machine, and where they are."""
    with ExitStack() as stack, tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)

        def listen(family: int, kind: int, address: Any) -> socket.socket | None:
            try:
                link = stack.enter_context(socket.socket(family, kind))
                link.bind(address)
                if kind == socket.SOCK_STREAM:
                    link.listen(8)
            except OSError:
                return None
            link.setblocking(False)
            return link

        path = f"{directory}/listener"
        abstract = f"\0{_ABSTRACT}-{os.getpid()}"
        made = {
            "tcp": listen(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "tcp6": listen(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
            "udp": listen(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            "abstract": listen(socket.AF_UNIX, socket.SOCK_STREAM, abstract),
            "abstract datagram": listen(socket.AF_UNIX, socket.SOCK_DGRAM, abstract + "-d"),
            "path": listen(socket.AF_UNIX, socket.SOCK_STREAM, path),
            "path datagram": listen(socket.AF_UNIX, socket.SOCK_DGRAM, path + "-d"),
        }
        live = {name: link for name, link in made.items() if link is not None}
        if "path" in live:
            Path(path).chmod(0o777)
        yield live, {name: link.getsockname() for name, link in live.items()}


def _reached(listeners: dict[str, socket.socket]) -> list[str]:
    """Which of the listeners heard anything."""
    heard = []
    for name, link in listeners.items():
        try:
            if link.type == socket.SOCK_STREAM:
                link.accept()[0].close()
            else:
                link.recv(16)
        except BlockingIOError:
            continue
        heard.append(name)
    return heard


@case("No listener of the host is reached: TCP, UDP, abstract and path sockets, streams and datagrams.")
async def listeners_are_not_reached(stand: Stand) -> None:
    with _listeners() as (listeners, addresses):
        targets = {
            name: (
                int(listeners[name].family),
                int(listeners[name].type),
                list(a) if isinstance(a, tuple) else os.fsdecode(a),
            )
            for name, a in addresses.items()
        }
        async with stand.open() as trial:
            results = await trial.seen(f"""
import socket
def reach(family, kind, address):
    address = tuple(address) if isinstance(address, list) else address
    results = []
    for way in ('connect', 'sendto'):
        def act():
            link = socket.socket(family, kind)
            link.settimeout(1)
            if way == 'connect':
                link.connect(address)
                return link.send(b'x')
            return link.sendto(b'x', address)
        results.append(tried(act))
    return results
report({{name: reach(*target) for name, target in {targets!r}.items()}})
""")
            heard = _reached(listeners)
            assert len(listeners) >= 4, (
                f"too few listeners could be made to prove anything: {list(listeners)}"
            )
            assert not heard, f"reached: {heard} ({results})"
            await trial.expect_alive()


@case("No socket can be made but AF_UNIX, within the sandbox.", needs="seccomp x86_64")
async def socket_families(stand: Stand) -> None:
    async with stand.open() as trial:
        made = await trial.seen("""
families = {f: [tried(lambda: call(41, f, kind, protocol)) for kind in (1, 2, 3, 5) for protocol in (0, 15)] for f in (*range(2, 46), 255)}
report({f: [r for r in results if not isinstance(r, str)] for f, results in families.items()})
""")
        open_families = {family: fds for family, fds in made.items() if fds}
        assert not open_families, f"sockets were made of the families {sorted(open_families)}"


@case("Nobody can be listened for: no bind, no listen, no accept on any socket.", needs="seccomp x86_64")
async def no_listener_can_be_made(stand: Stand) -> None:
    async with stand.open() as trial:
        results = await trial.seen("""
import socket
link = socket.socket(socket.AF_UNIX)
report({'bind': tried(lambda: link.bind('\\0x')), 'bind to a path': tried(lambda: link.bind('/workspace/s')),
        'listen': tried(link.listen), 'connect': tried(lambda: link.connect('\\0x'))})
""")
        allowed = {name: result for name, result in results.items() if result not in {"EPERM", "EACCES"}}
        assert not allowed, f"not refused: {allowed}"


@case("No interface of the network is up, and no name can be resolved.", needs="net-ns")
async def there_is_no_interface(stand: Stand) -> None:
    async with stand.open() as trial:
        devices, resolved = await trial.seen("""
import socket
lines = tried(lambda: open('/proc/self/net/dev').read())
devices = [] if lines in ('ENOENT', 'EACCES', 'EPERM') else [l.split(':')[0].strip() for l in lines.splitlines()[2:]]
report([devices, tried(lambda: socket.getaddrinfo('localhost.localdomain', 80)[0][4])])
""")
        beyond = set(devices) - {
            "lo",
            "tunl0",
            "sit0",
            "ip6tnl0",
            "gre0",
            "gretap0",
            "erspan0",
            "ip_vti0",
            "ip6_vti0",
            "ip6gre0",
        }
        assert not beyond, f"interfaces: {sorted(beyond)}"
        assert isinstance(resolved, str), f"a name was resolved: {resolved}"


CASES = cases_of(dict(globals()))
