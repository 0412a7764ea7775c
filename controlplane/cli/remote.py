"""A Custodian over the network: what commands ask is asked of a server, and what it says becomes the same views."""

import os
import queue
import tempfile
import threading
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import IO

from pydantic import JsonValue

from controlplane.adapters.sources.typed import Source
from controlplane.api.bodies import ArtifactBody, JobFilter
from controlplane.api.bodies_files import EvidenceBody
from controlplane.cli.exits import Refusal
from controlplane.cli.remote_views import job_view, line_view, question_view, record_of, request_of
from controlplane.client import Client, ClientError, Update
from controlplane.client.errors import Missing, Unreachable
from controlplane.custodian import JobLine, JobQuery, OnConverted, Wait
from controlplane.domain.commands import JobRequest, Order
from controlplane.errors import Tampered
from controlplane.views import JobView, QuestionView
from rlm_worker.contracts import Budget, EvidenceRef, TraceRecord
from rlm_worker.contracts.reading import ManifestEntry
from rlm_worker.contracts.result import ArtifactRef
from rlm_worker.contracts.trace import GENESIS, BrokenChain, check_link

_TICK_SECONDS = 0.1
#: Ids are looked up by their beginning among this many of the newest jobs.
_LOOKED_THROUGH = 500
_PAGE = 500


class RemoteApp:
    """A server, as commands see it."""

    has_whole_specs = False
    hint_of_workers = "It waits for a worker of that server: custody workers"

    def __init__(self, client: Client) -> None:
        self.client = client
        self.place = client.server
        self._cursors: dict[tuple[str, int], str] = {}

    @cached_property
    def _content(self) -> bool:
        """Whether texts may be asked for."""
        return "content.read" in self.client.whoami().capabilities

    def stage(
        self,
        sources: Sequence[Path | Source],
        *,
        snapshot: bool = False,
        on_converted: OnConverted = lambda _done, _total, _name: None,
    ) -> tuple[EvidenceRef, ...]:
        from controlplane.cli.remote_evidence import bring_in  # noqa: PLC0415  # most commands bring nothing

        del snapshot, on_converted  # what is sent is a copy, and it is converted over there
        return tuple(_ref(body) for body in bring_in(self, sources))

    def submit(self, request: JobRequest) -> JobView:
        return job_view(self.client.submit(request_of(request), content=self._content))

    def job(self, job_id: str) -> JobView:
        try:
            body = self.client.job(job_id, content=self._content)
        except Missing as missing:
            body = self.client.job(self._whole(job_id, missing), content=self._content)
        return job_view(body)

    def _whole(self, prefix: str, missing: Missing) -> str:
        """The one job whose id begins like this."""
        newest = zip(range(_LOOKED_THROUGH), self.client.jobs(limit=_PAGE), strict=False)
        found = [item.job_id for _, item in newest if item.job_id.startswith(prefix)]
        if len(found) > 1:
            raise Refusal(f"{prefix!r} is the beginning of several jobs: {', '.join(found[:5])}")
        if not found:
            raise missing
        return found[0]

    def lines(self, query: JobQuery) -> Iterator[JobLine]:
        where = JobFilter(
            states=() if query.state is None else (query.state,),
            labels=tuple(f"{name}={value}" for name, value in query.labels),
            model=query.model or None,
            words=query.words,
            created_after=query.since,
            task_id=query.task_id or None,
        )
        return (line_view(item) for item in self.client.jobs(where, content=self._content))

    def is_abandoned(self, view: JobView) -> bool:
        del view  # the server looks after that itself
        return False

    def stop(self, job_id: str, *, order: Order = "stop", by: str = "", reason: str = "") -> JobView:
        del by  # the key says who it is
        act = {"stop": self.client.stop, "kill": self.client.kill, "pause": self.client.pause}[order]
        act(job_id, reason=reason)
        return self.job(job_id)

    def steer(self, job_id: str, text: str, *, by: str = "") -> int:
        del by
        return self.client.steer(job_id, text).steer_id

    def resume(self, job_id: str, *, by: str = "") -> JobView:
        del by
        self.client.resume(job_id)
        return self.job(job_id)

    def fork(
        self, job_id: str, *, at: int | None, by: str = "", steer: str = "", budget: Budget | None = None
    ) -> JobView:
        del by
        return self.job(self.client.fork(job_id, at=at, steer=steer, budget=budget).job_id)

    def questions(self, job_id: str) -> list[QuestionView]:
        return [question_view(job_id, body) for body in self.client.questions(job_id, content=self._content)]

    def reply(self, job_id: str, *, question: int | None, value: JsonValue, by: str = "") -> int:
        del by
        asked = [one.question for one in self.questions(job_id) if not one.is_answered]
        number = question if question is not None or len(asked) != 1 else asked[0]
        self.client.answer(job_id, value, question=number)
        return -1 if number is None else number

    def trace(self, job_id: str, *, after: int = 0, limit: int = 1_000) -> list[TraceRecord]:
        """Events from a place on. Only the places at which pages ended are found without reading what is before them."""
        from controlplane.client import job_calls  # noqa: PLC0415

        cursor = self._cursors.get((job_id, after))
        if cursor is None and after:
            return [record for record in self._all(job_id) if record.seq >= after][:limit]
        call = job_calls.trace(job_id, limit=min(limit, _PAGE), cursor=cursor, content=self._content)
        page = self.client.do(call)
        if page.next is not None:
            self._cursors[job_id, after + len(page.items)] = page.next
        return [record_of(item) for item in page.items]

    def _all(self, job_id: str) -> Iterator[TraceRecord]:
        return (record_of(item) for item in self.client.trace(job_id, limit=_PAGE, content=self._content))

    def follow(self, job_id: str, *, wait: Wait) -> Iterator[tuple[JobView, list[TraceRecord]]]:
        news = _News(self.client, job_id, content=self._content)
        view, is_old = self.job(job_id), False
        while True:
            records, has_changed = news.since()
            yield view, records
            wait(_TICK_SECONDS)
            if has_changed or is_old or view.is_terminal:
                view, is_old = self._looked_at(view)

    def _looked_at(self, view: JobView) -> tuple[JobView, bool]:
        """The job as it stands; as it stood, where its server is away for the moment: the stream waits for that."""
        try:
            return self.job(view.job_id), False
        except Unreachable:
            return view, True

    def verify(self, view: JobView) -> int:
        if not self._content:
            raise Refusal(
                "a chain is checked over everything in it, and this key may not read texts: use one with content.read."
            )
        seq, head = 0, GENESIS
        for record in self._all(view.job_id):
            try:
                check_link(record, seq=seq, prev=head)
            except BrokenChain as broken:
                raise Tampered(f"trace of {view.job_id}, event {broken.seq}: {broken.reason}") from broken
            seq, head = seq + 1, record.hash
            if seq == view.trace_events:
                break
        if (seq, head) != (view.trace_events, view.trace_head):
            raise Tampered(f"trace of {view.job_id}: the chain holds only up to event {seq}")
        return seq

    def manifest(self, ref: EvidenceRef) -> Sequence[ManifestEntry]:
        del ref
        return ()

    def notes(self, ref: EvidenceRef) -> Sequence[str]:
        return (f"digest {ref.manifest_digest}; the list of its files is kept on the server",)

    @contextmanager
    def artifact(self, view: JobView, ref: ArtifactRef) -> Iterator[IO[bytes]]:
        body = ArtifactBody(path=ref.path, sha256=ref.digest, size_bytes=ref.size_bytes)
        with tempfile.TemporaryDirectory(prefix="custody-") as aside:
            content = self.client.download(view.job_id, body, Path(aside, "content"))
            with content.open("rb") as opened:
                yield opened

    def place_of(self, ref: ArtifactRef) -> Path | None:
        del ref
        return None

    def at_work(self, only_jobs: AbstractSet[str]) -> AbstractContextManager[object]:
        del only_jobs  # that server's own workers are
        return nullcontext()


def _ref(body: EvidenceBody) -> EvidenceRef:
    return EvidenceRef(
        name=body.name,
        kind=body.kind,
        location="",
        manifest_digest=body.digest,
        files=body.files,
        size_bytes=body.size_bytes,
        trust=body.trust,
        origin=body.origin,
    )


class _News:
    """What a job's stream brings, read by a thread so that a person's keys are heard meanwhile."""

    def __init__(self, client: Client, job_id: str, *, content: bool) -> None:
        self._came: queue.SimpleQueue[Update | ClientError | None] = queue.SimpleQueue()
        thread = threading.Thread(
            target=self._read, args=(client, job_id, content), name=f"stream-{os.getpid()}", daemon=True
        )
        thread.start()

    def _read(self, client: Client, job_id: str, content: bool) -> None:
        try:
            for update in client.follow(job_id, content=content):
                self._came.put(update)
        except ClientError as error:
            self._came.put(error)
        else:
            self._came.put(None)

    def since(self) -> tuple[list[TraceRecord], bool]:
        """The events that have come since the last time, and whether the job may stand otherwise now."""
        records, has_changed = [], False
        while not self._came.empty():
            update = self._came.get()
            if isinstance(update, ClientError):
                raise update
            has_changed = True
            if update is not None and update.event is not None:
                records.append(record_of(update.event))
        return records, has_changed
