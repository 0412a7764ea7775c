"""Evidence behind a URL: http by the standard library, every other scheme by fsspec. Reads once; names no secret."""

import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from controlplane.adapters.content_store import Blob, ContentStore, blocks_of
from controlplane.adapters.sources.bounds import Tally
from controlplane.adapters.sources.paths import free_path, safe_path
from controlplane.errors import InvalidRequest

_SECONDS = 60
#: By which file systems of fsspec tell versions of a file: by what names a version, else by times.
_NAMED = ("ETag", "etag", "generation", "md5")
_TIMED = ("LastModified", "last_modified", "mtime", "created")


def shown_url(url: str) -> str:
    """A URL, or a chain of them, without user, password, query and fragment: they may hold secrets."""
    return "::".join(_shown(link) for link in url.split("::"))


def _shown(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urllib.parse.urlunsplit((parts.scheme, host, parts.path, "", ""))


def _said(error: Exception, url: str) -> str:
    """What an error says, without the parts of the URL that are not shown."""
    text = str(error)
    for link in url.split("::"):
        parts = urllib.parse.urlsplit(link)
        login = parts.netloc.rpartition("@")[0]
        for secret in (login, *login.split(":", 1), parts.query, parts.fragment):
            for spelled in {secret, urllib.parse.unquote(secret)} - {""}:
                text = text.replace(spelled, "…")
    return text


def name_of(url: str) -> str:
    """The last part of a URL's path; of one without a path, its host."""
    parts = urllib.parse.urlsplit(url.partition("::")[0])
    last = urllib.parse.unquote(parts.path.rstrip("/").rpartition("/")[2])
    return last or parts.netloc.rpartition("@")[2]


def keep(url: str, store: ContentStore, tally: Tally) -> Blob | dict[str, Blob]:
    """A file, or every file below a folder by its path."""
    if url.lower().startswith(("http://", "https://")):
        return _web(url, store, tally)
    try:
        return _elsewhere(url, store, tally)
    except ImportError as error:
        raise InvalidRequest(
            f"evidence {shown_url(url)!r} needs a library that is not installed: {error}; "
            "for s3:// it is pip install 'custody[s3]'"
        ) from error
    except FileNotFoundError:
        raise InvalidRequest(f"there is nothing at {shown_url(url)!r}") from None
    except InvalidRequest:
        raise
    except Exception as error:  # noqa: BLE001 - every file system of fsspec raises errors of its own kind
        raise InvalidRequest(
            f"evidence {shown_url(url)!r} cannot be read: {type(error).__name__}: {_said(error, url)}"
        ) from None  # what caused it may name secrets


def _web(url: str, store: ContentStore, tally: Tally) -> Blob:
    request = urllib.request.Request(url, headers={"User-Agent": "custody"})  # noqa: S310 - http only, see above
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - as above
            promised = answer.headers.get("Content-Length")
            blob = store.keep(tally.count(blocks_of(answer)))
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
        raise InvalidRequest(f"evidence {shown_url(url)!r} cannot be read: {_said(error, url)}") from None
    if promised is not None and promised.isdigit() and int(promised) != blob.size_bytes:
        raise InvalidRequest(
            f"evidence {shown_url(url)!r} came incomplete: {blob.size_bytes:,} of {int(promised):,} bytes"
        )
    return blob


def _elsewhere(url: str, store: ContentStore, tally: Tally) -> Blob | dict[str, Blob]:
    import fsspec  # noqa: PLC0415 - only such evidence needs it

    system, root = fsspec.core.url_to_fs(url)
    system.invalidate_cache()  # what an earlier evidence was told may not hold any more
    if system.isfile(root):
        return _one(system, root, {}, store, tally)
    files: dict[str, Blob] = {}
    for path, below, listed in _listed(system, root, tally):
        files[below] = _one(system, path, listed, store, tally)
    if not files:
        raise InvalidRequest(f"there is nothing at {shown_url(url)!r}")
    return files


def _listed(system: Any, root: str, tally: Tally) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every file below a folder: where it lies, its path, and what the list says of it."""
    taken: set[str] = set()
    folders: set[str] = set()
    top = system._strip_protocol(root).rstrip("/")  # noqa: SLF001 - what its own listings begin with
    for path, listed in sorted(system.find(root, detail=True).items()):
        tally.entry()
        below = safe_path(path.removeprefix(top).lstrip("/"))
        if below is None or not free_path(below, taken, folders):
            tally.leave_out(path, "its path leads out of the folder or is none")
        else:
            yield path, below, listed


def _one(system: Any, path: str, listed: dict[str, Any], store: ContentStore, tally: Tally) -> Blob:
    """A file that is the same when it has been read as it was before; large ones are read in many requests."""
    before = _version(listed) if any(listed.get(name) for name in _NAMED) else _version(system.info(path))
    with system.open(path, "rb") as opened:
        blob = store.keep(tally.count(blocks_of(opened)))
    system.invalidate_cache(path)
    size = before["size"]
    if _version(system.info(path)) != before or (isinstance(size, int) and size != blob.size_bytes):
        raise InvalidRequest(f"{path!r} was changed while it was read: stage it again")
    return blob


def _version(info: dict[str, Any]) -> dict[str, Any]:
    """What tells one version of a file from the next. A list and the file itself may tell times differently, never names."""
    named = {name: info[name] for name in _NAMED if info.get(name)}
    return {"size": info.get("size"), **(named or {name: info[name] for name in _TIMED if info.get(name)})}
