"""Where a server is, and how a request to it looks. Refuses to show a key to a network that anybody can read."""

import ipaddress
from urllib.parse import urlsplit

from controlplane.client.errors import BadRequest

_AGENT = "custody-client"


def checked_address(server: str, *, has_key: bool, allow_plain: bool) -> str:
    """The address of a server, without a slash at its end."""
    parts = urlsplit(server)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadRequest(f"the server {server!r} is no address: write it like https://custody.example.org")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadRequest("the address of a server holds neither a name nor a key nor a query: leave it out")
    if parts.scheme == "http" and has_key and not allow_plain and not is_loopback(parts.hostname):
        raise BadRequest(
            f"{server} is not encrypted: whoever is on the way could read your key. Use https, or say that the network "
            "is safe with CUSTODY_PLAIN_HTTP=1 (allow_plain_http=True in Python)"
        )
    return server.rstrip("/")


def is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def headers_of(key: str | None) -> dict[str, str]:
    """What every request carries."""
    shown = {"User-Agent": _AGENT, "Accept": "application/json"}
    if key is None:
        return shown
    if not key.isascii() or not key.isprintable() or " " in key:
        raise BadRequest("the key holds characters that no key has: copy it again, without spaces around it")
    return {**shown, "Authorization": f"Bearer {key}"}
