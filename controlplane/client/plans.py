"""Acts of several requests, as generators: they yield what is to be asked or waited for, and are sent the answers."""

import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.api.bodies import JobBody, SubmitRequest
from controlplane.api.bodies_files import (
    EvidenceBody,
    EvidenceFile,
    EvidenceRequest,
    UploadBody,
)
from controlplane.client import file_calls, job_calls
from controlplane.client.calls import Pause, Plan
from controlplane.client.errors import BadRequest, Conflict, Damaged, Unreachable
from controlplane.views import TERMINAL

#: Told of each piece: bytes that have come, bytes of everything, the file's path.
OnSent = Callable[[int, int, str], None]

PIECE_BYTES = 4 << 20
_FIRST_LOOK_SECONDS = 0.05
_LONGEST_LOOK_SECONDS = 1.0
#: Times a piece of a file is tried after it broke off.
_TRIES = 5
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._ -]+")


def unheard(_sent: int, _total: int, _path: str) -> None:
    """For whoever does not look."""


def wait(
    job_id: str, *, timeout: float | None = None, for_answers: bool = True, content: bool = False
) -> Plan[JobBody]:
    """A job when it has ended, or when it waits for a person and `for_answers` is false; TimeoutError when it takes longer."""
    deadline = None if timeout is None else time.monotonic() + timeout
    pause = _FIRST_LOOK_SECONDS
    while True:
        job: JobBody = yield job_calls.job(job_id, content=content)
        if job.state in TERMINAL or (job.parked_for == "asked" and not for_answers):
            return job
        if deadline is not None and time.monotonic() + pause > deadline:
            raise TimeoutError(f"job {job_id} is {job.state} after {timeout} s; it goes on")
        yield Pause(pause)
        pause = min(pause * 1.5, _LONGEST_LOOK_SECONDS)


def run(
    request: SubmitRequest, *, timeout: float | None = None, key: str | None = None, content: bool = True
) -> Plan[JobBody]:
    """Submit a job and wait until it has ended."""
    job: JobBody = yield job_calls.submit(request, key=key)
    return (yield from wait(job.job_id, timeout=timeout, content=content))


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """A file that is to be sent."""

    place: Path
    path: str
    size_bytes: int


def bring(
    place: Path | str,
    *,
    name: str | None = None,
    plain: bool = False,
    on_sent: OnSent = unheard,
) -> Plan[EvidenceBody]:
    """Upload a file or a folder and make it evidence. What the server has already is not sent again."""
    root = Path(place)
    pieces = _pieces(root)
    total, done = sum(piece.size_bytes for piece in pieces), 0
    files = []
    for piece in pieces:
        before = done

        def tell(sent: int, _size: int, path: str, *, start: int = before) -> None:
            on_sent(start + sent, total, path)

        sent = yield from upload(piece.place, path=piece.path, on_sent=tell)
        files.append(EvidenceFile(path=piece.path, sha256=sent.sha256))
        done += piece.size_bytes
        on_sent(done, total, piece.path)
    request = EvidenceRequest(name=name or fitting_name(root), files=tuple(files), plain=plain)
    made: EvidenceBody = yield file_calls.make_evidence(request)
    return made


def upload(place: Path, *, path: str = "", on_sent: OnSent = unheard) -> Plan[UploadBody]:
    """Send one file; goes on where it broke off."""
    size, sha256 = _measured(place)
    sent: UploadBody = yield file_calls.begin_upload(sha256, size)
    tried = 0
    with place.open("rb") as content:
        while not sent.is_complete:
            content.seek(sent.received_bytes)
            piece = content.read(PIECE_BYTES)
            if not piece:
                raise BadRequest(f"the file {str(place)!r} got shorter while it was sent: send it again")
            offset = sent.received_bytes
            try:
                sent = yield file_calls.send_piece(sent.upload_id, piece, offset=offset)
                tried = 0
            except (Unreachable, Conflict):
                tried += 1
                if tried > _TRIES:
                    raise
                yield Pause(min(0.2 * 2**tried, 5.0))
                sent = yield file_calls.upload(sent.upload_id)
            on_sent(sent.received_bytes, size, path or place.name)
    if sent.sha256 != sha256:
        raise Damaged(f"the server has other content than {str(place)!r}: send it again")
    return sent


def fitting_name(place: Path) -> str:
    """A name for evidence that a server takes."""
    name = _NOT_IN_A_NAME.sub("_", place.resolve().name).lstrip("._ -")[:200]
    return name or "evidence"


def _pieces(root: Path) -> Sequence[_Piece]:
    """The file, or every file below the folder in a fixed order. Links are followed nowhere."""
    if root.is_file():
        return (_Piece(place=root, path=root.name, size_bytes=root.stat().st_size),)
    if not root.is_dir():
        raise BadRequest(f"there is neither a file nor a folder at {str(root)!r}")
    found = []
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            place = Path(folder, name)
            if place.is_file() and not place.is_symlink():
                path = place.relative_to(root).as_posix()
                found.append(_Piece(place=place, path=path, size_bytes=place.stat().st_size))
    if not found:
        raise BadRequest(f"the folder {str(root)!r} holds no files")
    return found


def _measured(place: Path) -> tuple[int, str]:
    try:
        with place.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
            return content.tell(), digest
    except OSError as error:
        raise BadRequest(f"the file {str(place)!r} cannot be read: {error.strerror}") from error
