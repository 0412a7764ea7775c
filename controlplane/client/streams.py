"""What comes piece by piece: a job's events over SSE, which go on where they broke off, and content that is checked."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from controlplane.api.bodies import ArtifactBody, JobItem, TraceItem, Withheld
from controlplane.client import job_calls
from controlplane.client.calls import Call, Said
from controlplane.client.errors import ClientError, Damaged, Forbidden, ServerFailed, Unreachable
from controlplane.client.retrying import Patience

#: Whoever follows a job waits while its server is started again.
_RESTART = Patience(retries=25, first_seconds=0.2, longest_seconds=5.0)
#: More than any event has: what is longer is no event of ours.
_LONGEST_EVENT = 512 << 20


@dataclass(frozen=True, kw_only=True)
class Update:
    """One thing that happened to a job: an event of its trace, or how it stands now."""

    event: TraceItem | None = None
    job: JobItem | None = None


class Following:
    """A job's stream, over as many connections as it takes. Fed with lines; knows where it is."""

    def __init__(self, job_id: str, *, after: str = "", content: bool = False) -> None:
        self._job_id = job_id
        self._content = content
        self._last_id = after
        self._kind = ""
        self._data: list[str] = []
        self._length = 0
        self._pending_id: str | None = None
        self._tried = 0
        self._was_there = False
        #: Whether the job has ended and everything of it has come.
        self.is_over = False

    def call(self) -> Call[Said]:
        """The request that goes on where this stands."""
        self._kind, self._data, self._length, self._pending_id = "", [], 0, None
        return job_calls.stream(self._job_id, after=self._last_id, content=self._content)

    def feed(self, line: str) -> Update | None:
        """Take one line; what it completes, if it completes something."""
        self._was_there = True
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        self._length += len(value)
        if self._length > _LONGEST_EVENT:
            raise ServerFailed("the server sent an event without an end; it was cut off")
        match name:
            case "event":
                self._kind = value
            case "data":
                self._data.append(value)
            case "id":
                self._pending_id = value
            case _:
                pass  # a comment that keeps the connection alive, or a field of a later release
        return None

    def _dispatch(self) -> Update | None:
        kind, data, new_id = self._kind, "\n".join(self._data), self._pending_id
        self._kind, self._data, self._length, self._pending_id = "", [], 0, None
        if new_id is not None:
            self._last_id = new_id
        if kind == "end":
            self.is_over = True
        if not data:
            return None
        self._tried = 0
        try:
            match kind:
                case "trace":
                    return Update(event=TraceItem.model_validate_json(data))
                case "state" | "end":
                    return Update(job=JobItem.model_validate_json(data))
                case _:
                    return None
        except ValidationError as error:
            raise ServerFailed(f"an event of the server cannot be read: {error.errors()[0]['msg']}") from None

    def broken(self, error: ClientError | None, *, patience: Patience, chance: float) -> float:
        """Seconds until the next connection; raises when there is no point in another one."""
        problem = error or Unreachable("the server ended the stream before the job had")
        bears = _RESTART if self._was_there else patience
        wait = bears.wait_after(problem, self.call(), tried=self._tried, chance=chance)
        if wait is None:
            raise problem
        self._tried += 1
        return wait


def path_of(artifact: ArtifactBody) -> str:
    """The path of a file; whoever may not read texts is not told it, and may not have the file."""
    if isinstance(artifact.path, Withheld):
        raise Forbidden("this key may not have files that jobs made: it needs content.read")
    return artifact.path


class Incoming:
    """Content on its way into a file, which is there whole and checked, or not at all."""

    def __init__(self, target: Path, *, sha256: str, what: str) -> None:
        self._target = target
        self._sha256 = sha256
        self._what = what
        self._fresh = target.with_name(f".{target.name}.{os.getpid()}")

    def __enter__(self) -> Self:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.fdopen(os.open(self._fresh, flags, 0o600), "wb")
        self._digest = hashlib.sha256()
        return self

    def take(self, piece: bytes) -> None:
        self._digest.update(piece)
        self._file.write(piece)

    def finish(self) -> Path:
        """Put the file in its place; raises when it is not what was promised."""
        self._file.close()
        if self._digest.hexdigest() != self._sha256:
            raise Damaged(f"the content of {self._what} that came is not what it should be: get it again")
        self._fresh.replace(self._target)
        return self._target

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._fresh.unlink(missing_ok=True)
