"""Where a request may go: hosts and ports in one spelling, and which addresses are nobody's business. Opens nothing."""

import ipaddress
import re
from dataclasses import dataclass

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

LOCALHOST = "localhost"
_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[a-z0-9_-]{1,63}(?<!-))*")
_NAME_CHARACTERS = 253
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[^\]/?#]*\]|[^/?#:\[\]]*)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[^?#]*)?(?P<query>\?[^#]*)?(?:#.*)?",
    re.IGNORECASE | re.DOTALL,
)
_TARGET = re.compile(r"[\x21-\x7e]*")
_URL_CHARACTERS = 8_000
_PORTS = {"http": 80, "https": 443}

#: IANA's special-purpose IPv4 blocks, multicast, reserved space, and one cloud's metadata service that hides in public space.
_CLOSED_V4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
            *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
            *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "168.63.129.16/32"),
        ),
    )
)
#: Of IPv6 only global unicast is open, and of that not what is reserved or carries an IPv4 address inside.
_OPEN_V6 = ipaddress.IPv6Network("2000::/3")
_CLOSED_V6 = tuple(
    map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "2620:4f:8000::/48"))
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class BadAddress(ValueError):
    """A host, port or URL that is not written in the one accepted way. The message says what is wrong."""


@dataclass(frozen=True)
class Endpoint:
    """A host in its one spelling (lower case, no final dot, addresses in canonical form) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Target:
    """A URL taken apart."""

    scheme: str
    endpoint: Endpoint
    path: str

    @property
    def host_header(self) -> str:
        named = str(self.endpoint)
        return named.rpartition(":")[0] if self.endpoint.port == _PORTS[self.scheme] else named


def endpoint(text: str) -> Endpoint:
    """Read `host:port` or `[v6]:port`, as a policy gives it."""
    host, _, port = text.rpartition(":")
    if not port.isascii() or not port.isdigit():
        raise BadAddress("it must be host:port, as in 'example.org:443'")
    return Endpoint(canonical_host(host), _port(port))


def target(url: str) -> Target:
    """Take a URL apart: http or https, no user name, nothing that two readers could read in two ways."""
    if len(url) > _URL_CHARACTERS:
        raise BadAddress(f"it is longer than {_URL_CHARACTERS} characters")
    match = _URL.fullmatch(url)
    if match is None:
        raise BadAddress("it must be http://host/… or https://host/…")
    scheme = match["scheme"].lower()
    path = (match["path"] or "/") + (match["query"] or "")
    if _TARGET.fullmatch(path) is None:
        raise BadAddress("its path and query must be printable ASCII without spaces: quote them")
    port = _PORTS[scheme] if match["port"] is None else _port(match["port"])
    return Target(scheme, Endpoint(canonical_host(match["host"]), port), path)


def _port(text: str) -> int:
    port = int(text)
    if not 0 < port < 1 << 16 or str(port) != text:
        raise BadAddress("the port must be a number from 1 to 65535")
    return port


def canonical_host(host: str) -> str:
    """One spelling for every host, so that a comparison is enough. Odd spellings of addresses are refused, not guessed at."""
    if host.startswith("[") and host.endswith("]"):
        return _canonical_v6(host[1:-1])
    if len(host) > _NAME_CHARACTERS + 1:
        raise BadAddress("the host is no name that can be looked up")
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError:
            raise BadAddress("the host is no name that can be looked up") from None
    host = host.lower().removesuffix(".")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise BadAddress("an IPv4 address is four decimal numbers without leading zeros") from None
    if len(host) > _NAME_CHARACTERS or _NAME.fullmatch(host) is None:
        raise BadAddress("the host is no name that can be looked up")
    return host


def _canonical_v6(text: str) -> str:
    try:
        address = ipaddress.IPv6Address(text)
    except ValueError:
        address = None
    if address is None or address.scope_id is not None:
        raise BadAddress("what stands in brackets must be an IPv6 address, without a zone")
    return str(plain_address(str(address)))


def plain_address(text: str) -> IPAddress:
    """An address as it will be connected to: one that only wraps an IPv4 address is that address."""
    found = ipaddress.ip_address(text)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return found if mapped is None else mapped


def literal(host: str) -> IPAddress | None:
    """The address that a canonical host is, if it is one."""
    try:
        return plain_address(host)
    except ValueError:
        return None


def is_public(address: IPAddress) -> bool:
    """Whether an address is one of the open internet: not private, local, shared, reserved, or anybody's metadata."""
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in block for block in _CLOSED_V4)
    if address in _NAT64:
        return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return address in _OPEN_V6 and not any(address in block for block in _CLOSED_V6)
