"""HTTP from inside a cell: `fetch` and urllib, each request asked of the host. Checks nothing; the host does."""

import base64
import importlib.abc
import importlib.machinery
import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any, cast
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from sandbox.guest.calls import NetworkRefused

Call = Callable[[str, dict[str, Any]], Any]

_REDIRECTS = 10
#: What the host writes itself, and urllib would add.
_HOSTS_OWN = frozenset({"host", "connection", "content-length"})
_URLLIB = "urllib.request"


class Response:
    """The answer to a request. `.text` and `.json()` read its body; a status of 400 and above is an answer like any other."""

    def __init__(self, url: str, said: Mapping[str, Any]) -> None:
        self.url = url
        self.status: int = said["status"]
        self.reason: str = said["reason"]
        self.header_list: list[tuple[str, str]] = [(name, value) for name, value in said["headers"]]
        #: Names in lower case; values of a repeated header joined by commas.
        self.headers: dict[str, str] = {}
        for name, value in self.header_list:
            before = self.headers.get(name.lower())
            self.headers[name.lower()] = value if before is None else f"{before}, {value}"
        self.body: bytes = base64.b64decode(said["body"])

    @property
    def ok(self) -> bool:
        return self.status < 400

    @property
    def text(self) -> str:
        """The body as text, in the charset it declares, else UTF-8."""
        _, _, charset = self.headers.get("content-type", "").lower().partition("charset=")
        try:
            return self.body.decode(charset.split(";")[0].strip(" \"'") or "utf-8", "replace")
        except LookupError:
            return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"<Response {self.status} {self.url} ({len(self.body):,} bytes)>"


class Web:
    """The network of one session, as far as its host gives it one."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def fetch(
        self,
        url: str,
        *,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
        data: bytes | str | Mapping[str, Any] | Sequence[Any] | None = None,
        timeout: float | None = None,
    ) -> Response:
        """Make an HTTP request: `fetch("https://example.org/a.json").json()`.

        Only hosts that this job may reach answer; anything else raises NetworkRefused, which says what is allowed.
        `data` makes it a POST: bytes or text as they are, a dict or list as JSON. Redirects are followed, each checked again.
        """
        body, kind = _body(data)
        given = dict(headers or {})
        if kind and not any(name.lower() == "content-type" for name in given):
            given["Content-Type"] = kind
        asked = (method or ("GET" if data is None else "POST")).upper()
        url = str(url)
        for _ in range(_REDIRECTS):
            response = self.ask(url, method=asked, headers=given.items(), body=body, timeout=timeout)
            goal = response.headers.get("location")
            if response.status not in {301, 302, 303, 307, 308} or goal is None:
                return response
            if response.status not in {307, 308} and asked not in {"GET", "HEAD"}:
                asked, body = "GET", b""
                given = {name: value for name, value in given.items() if name.lower() != "content-type"}
            before, url = url, urljoin(url, goal)
            if urlsplit(before)[:2] != urlsplit(url)[:2]:
                # What was meant for one host is not told to another.
                given = {
                    name: text
                    for name, text in given.items()
                    if name.lower() not in {"authorization", "cookie"}
                }
        raise NetworkRefused(f"{url} was redirected more than {_REDIRECTS} times")

    def ask(
        self,
        url: str,
        *,
        method: str,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        timeout: float | None,
    ) -> Response:
        """One request, one answer."""
        payload: dict[str, Any] = {
            "method": method,
            "url": _quoted(url),
            "headers": [[name, value] for name, value in headers if name.lower() not in _HOSTS_OWN],
        }
        if body:
            payload["body"] = base64.b64encode(body).decode("ascii")
        if timeout is not None:
            payload["timeout"] = timeout
        return Response(url, self._call("network", payload))

    def carry_urllib(self) -> None:
        """Make urllib.request.urlopen ask the host, now or as soon as a cell imports it: it is slow to import."""
        loaded = sys.modules.get(_URLLIB)
        if loaded is not None:
            self.install_opener(loaded)
        elif not any(isinstance(finder, _AfterImport) for finder in sys.meta_path):
            sys.meta_path.insert(0, _AfterImport(self.install_opener))

    def install_opener(self, request: ModuleType) -> None:
        opener = request.OpenerDirector()
        for handler in (
            _carrier(request, self.ask),
            request.HTTPRedirectHandler(),
            request.HTTPDefaultErrorHandler(),
            request.HTTPErrorProcessor(),
            request.DataHandler(),
            request.UnknownHandler(),
        ):
            opener.add_handler(handler)
        request.install_opener(opener)


class _AfterImport(importlib.abc.MetaPathFinder):
    """Does something to urllib.request once it is loaded, and then stands aside."""

    def __init__(self, then: Callable[[ModuleType], None]) -> None:
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _URLLIB:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._then)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, inner: importlib.abc.Loader, then: Callable[[ModuleType], None]) -> None:
        self._inner = inner
        self._then = then

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._inner.exec_module(module)
        self._then(module)


def _carrier(request: ModuleType, ask: Callable[..., Response]) -> Any:
    """A urllib handler that carries its requests to the host."""

    class Carrier(request.BaseHandler):  # type: ignore[misc, name-defined]
        def http_open(self, asked: Any) -> Any:
            import email.message  # noqa: PLC0415 - urllib has loaded it by now
            import socket  # noqa: PLC0415
            import urllib.error  # noqa: PLC0415
            import urllib.response  # noqa: PLC0415

            timeout = asked.timeout if isinstance(asked.timeout, int | float) else socket.getdefaulttimeout()
            try:
                answer = ask(
                    asked.full_url,
                    method=asked.get_method(),
                    headers=asked.header_items(),
                    body=_read(asked.data),
                    timeout=timeout,
                )
            except NetworkRefused as refusal:
                raise urllib.error.URLError(refusal) from None
            headers = email.message.Message()
            for name, value in answer.header_list:
                headers.add_header(name, value)
            response = urllib.response.addinfourl(
                io.BytesIO(answer.body), headers, asked.full_url, answer.status
            )
            cast("Any", response).msg = answer.reason
            return response

        https_open = http_open

    return Carrier()


def _read(data: Any) -> bytes:
    if data is None:
        return b""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    return bytes(data.read()) if hasattr(data, "read") else b"".join(data)


def _body(data: bytes | str | Mapping[str, Any] | Sequence[Any] | None) -> tuple[bytes, str]:
    if data is None:
        return b"", ""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data), "application/octet-stream"
    if isinstance(data, str):
        return data.encode(), "text/plain; charset=utf-8"
    return json.dumps(data).encode(), "application/json"


def _quoted(url: str) -> str:
    """Write spaces and letters beyond ASCII in path and query as the web does; the host is left to the host."""
    parts = urlsplit(url)
    path = quote(parts.path, safe="/%!$&'()*+,;=:@~")
    query = quote(parts.query, safe="/%!$&'()*+,;=:@~?[]")
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))
