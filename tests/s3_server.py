"""An S3 server on the loopback, as far as reading goes: lists in pages, heads, ranges, If-Match, signed requests only."""

import hashlib
import re
import threading
import urllib.parse
from collections.abc import Callable
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from xml.sax.saxutils import escape

KEY_ID = "AKIDEXAMPLEOFTESTS01"
SECRET = "secret-of-the-tests-0123456789abcdef"


class S3Server:
    """Objects by bucket and key. `on_get` is told of each GET of an object after it was answered."""

    def __init__(self, objects: dict[str, bytes], *, page: int = 2) -> None:
        self.objects = dict(objects)
        self.page = page
        self.gets: list[tuple[str, str]] = []
        self.on_get: Callable[[str], None] = lambda path: None
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_HEAD(self) -> None:
                server.answer(self, with_body=False)

            def do_GET(self) -> None:
                server.answer(self, with_body=True)

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, request: BaseHTTPRequestHandler, *, with_body: bool) -> None:
        parts = urllib.parse.urlsplit(request.path)
        path, query = urllib.parse.unquote(parts.path).strip("/"), dict(urllib.parse.parse_qsl(parts.query))
        if f"Credential={KEY_ID}/" not in request.headers.get("Authorization", ""):
            self._reply(request, 403, _error("InvalidAccessKeyId"), with_body=with_body)
        elif "list-type" in query:
            self._reply(request, 200, self._list(path, query), with_body=with_body)
        elif path not in self.objects:
            self._reply(request, 404, _error("NoSuchKey"), with_body=with_body)
        else:
            self._object(request, path, with_body=with_body)

    def _object(self, request: BaseHTTPRequestHandler, path: str, *, with_body: bool) -> None:
        content = self.objects[path]
        tag = f'"{hashlib.md5(content).hexdigest()}"'
        wanted = request.headers.get("If-Match")
        if wanted is not None and wanted != tag:
            self._reply(request, 412, _error("PreconditionFailed"), with_body=with_body)
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range", ""))
        first, last = (
            (int(asked[1]), min(int(asked[2]), len(content) - 1)) if asked else (0, len(content) - 1)
        )
        headers = {"ETag": tag, "Last-Modified": formatdate(0, usegmt=True), "Accept-Ranges": "bytes"}
        if asked:
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        part = content[first : last + 1]
        self._reply(request, 206 if asked else 200, part, with_body=with_body, headers=headers)
        if with_body:
            self.gets.append((path, request.headers.get("Range", "")))
            self.on_get(path)

    def _list(self, bucket: str, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        keys = sorted(path.partition("/")[2] for path in self.objects if path.startswith(f"{bucket}/"))
        keys = [key for key in keys if key.startswith(prefix)]
        folders = sorted(
            {
                prefix + key[len(prefix) :].partition(delimiter)[0] + delimiter
                for key in keys
                if delimiter in key[len(prefix) :]
            }
            if delimiter
            else set()
        )
        keys = [key for key in keys if not delimiter or delimiter not in key[len(prefix) :]]
        start = int(query.get("continuation-token", "0"))
        most = min(self.page, int(query.get("max-keys", "1000")))
        chosen, more = keys[start : start + most], start + most < len(keys)
        body = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.objects[f'{bucket}/{key}'])}</Size>"
            f"<LastModified>1970-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>&quot;{hashlib.md5(self.objects[f'{bucket}/{key}']).hexdigest()}&quot;</ETag></Contents>"
            for key in chosen
        )
        body += "".join(
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in folders
        )
        token = f"<NextContinuationToken>{start + most}</NextContinuationToken>" if more else ""
        return (
            '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>{escape(bucket)}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(chosen)}</KeyCount>"
            f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{body}</ListBucketResult>"
        ).encode()

    def _reply(
        self,
        request: BaseHTTPRequestHandler,
        status: int,
        body: bytes,
        *,
        with_body: bool,
        headers: dict[str, str] | None = None,
    ) -> None:
        request.send_response(status)
        for name, value in {"Content-Type": "application/xml", **(headers or {})}.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if with_body:
            request.wfile.write(body)


def _error(code: str) -> bytes:
    return f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'.encode()
