"""What an App does for the commands of a person, in a home of this machine. A part of App, apart from its requests."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, cast

from pydantic import JsonValue

from controlplane.adapters.evidence import EvidenceRoom
from controlplane.config import Settings
from controlplane.custodian import JobLine, JobQuery, Wait, driver_name
from controlplane.errors import NotFound
from controlplane.handlers.asking import Question
from controlplane.handlers.searching import Search
from controlplane.views import JobPage, JobView
from rlm_worker.contracts import EvidenceRef, TraceRecord
from rlm_worker.contracts.reading import ManifestEntry
from rlm_worker.contracts.result import ArtifactRef

if TYPE_CHECKING:
    from controlplane.bootstrap import App

_POLL_SECONDS = 0.1
_PAGE = 500


class _Home(Protocol):
    """The App that this is a part of, as far as it is needed here."""

    settings: Settings
    evidence: EvidenceRoom

    def job(self, job_id: str) -> JobView: ...
    def search(self, wanted: Search, *, limit: int, cursor: str | None = None) -> JobPage: ...
    def trace(self, job_id: str, *, after: int, limit: int) -> list[TraceRecord]: ...
    def answer(self, job_id: str, *, question: int | None, value: JsonValue, by: str) -> Question: ...
    def verify_trace(self, job_id: str) -> int: ...
    def verify_receipts(self, task_id: str) -> int: ...
    def place_of(self, ref: ArtifactRef) -> Path: ...


class AtHome:
    """The parts of a Custodian that are the same whoever asks."""

    place = "this home"
    has_whole_specs = True
    hint_of_workers = "It waits for a worker of this home: custody worker"

    def lines(self: "_Home", query: JobQuery) -> Iterator[JobLine]:
        wanted = Search(
            states=frozenset() if query.state is None else frozenset({query.state}),
            task_id=query.task_id or None,
            labels=dict(query.labels),
            model=query.model or None,
            created_after=query.since,
            words=query.words,
        )
        page = self.search(wanted, limit=_PAGE)
        yield from map(line_of, page.items)
        while page.next is not None:
            page = self.search(wanted, limit=_PAGE, cursor=page.next)
            yield from map(line_of, page.items)

    def reply(self: "_Home", job_id: str, *, question: int | None, value: JsonValue, by: str = "") -> int:
        return self.answer(job_id, question=question, value=value, by=by).question

    def follow(self: "_Home", job_id: str, *, wait: Wait) -> Iterator[tuple[JobView, list[TraceRecord]]]:
        seen = 0
        while True:
            view = self.job(job_id)
            while records := self.trace(job_id, after=seen, limit=_PAGE):
                seen += len(records)
                yield view, records
            yield view, []
            wait(_POLL_SECONDS)

    def verify(self: "_Home", view: JobView) -> int:
        events = self.verify_trace(view.job_id)
        self.verify_receipts(view.task_id)
        return events

    def manifest(self: "_Home", ref: EvidenceRef) -> Sequence[ManifestEntry]:
        return self.evidence.manifest(ref)

    def notes(self: "_Home", ref: EvidenceRef) -> Sequence[str]:
        return self.evidence.notes(ref)

    def artifact(self: "_Home", view: JobView, ref: ArtifactRef) -> AbstractContextManager[IO[bytes]]:
        try:
            return self.place_of(ref).open("rb")
        except FileNotFoundError:
            raise NotFound(
                f"the content of {ref.path!r} of {view.job_id} is no longer kept in this home."
            ) from None

    def place_of(self: "_Home", ref: ArtifactRef) -> Path:
        return self.settings.artifacts / ref.digest

    def at_work(self: "_Home", only_jobs: AbstractSet[str]) -> AbstractContextManager[object]:
        from controlplane.runtime import EmbeddedRuntime  # noqa: PLC0415  # it wires in the worker

        return EmbeddedRuntime(cast("App", self), only_jobs=only_jobs)


def line_of(view: JobView) -> JobLine:
    usage = view.usage if view.result is None else view.result.usage
    return JobLine(
        job_id=view.job_id,
        state=view.state,
        question=view.spec.task,
        created_at=view.created_at,
        driver=driver_name(view.spec),
        subcalls=usage.subcalls,
        tokens=usage.tokens,
        cost_usd=usage.cost_usd,
        answered_by="" if view.result is None else view.result.answered_by,
    )
