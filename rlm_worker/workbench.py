"""What all REPLs of one job tree share: the record, the models, the limiter. Made once per attempt."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import sandbox
from rlm_worker.asking import Models
from rlm_worker.citations import CitationBook
from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import JobSpec
from rlm_worker.contracts.gateway import PersonAnswer
from rlm_worker.contracts.job import ModelDriver
from rlm_worker.contracts.limits import ModelPriced
from rlm_worker.contracts.trace import SubcallFinished
from rlm_worker.errors import LostAuthority
from rlm_worker.journal import Journal
from rlm_worker.models import Model
from rlm_worker.trace import TraceWriter
from rlm_worker.waiting import Waiting

_CUTTING_AT_ONCE = 2

OpenSession = Callable[[sandbox.Policy], Awaitable[sandbox.Session]]


class Workbench:
    """The shared parts of an attempt."""

    def __init__(
        self,
        *,
        spec: JobSpec,
        settings: WorkerSettings,
        journal: Journal,
        writer: TraceWriter,
        open_session: OpenSession = sandbox.open_session,
        artifacts: Path | None = None,
        hand_in: Callable[[Path], None] | None = None,
    ) -> None:
        self.spec = spec
        self.settings = settings
        self.journal = journal
        self.writer = writer
        self.open_session = open_session
        #: Where what jobs made is kept, by content; nowhere on some workers.
        self.artifacts = artifacts
        self._hand_in = hand_in
        self.models = Models(settings)
        self._priced: set[str] = set()
        root = (spec.driver.model,) if isinstance(spec.driver, ModelDriver) else ()
        #: Models that a cell may name in predict(); the first is the default.
        self.predict_models = (spec.sub_model, *root)
        self.waiting = Waiting()
        self.limiter = asyncio.Semaphore(settings.subcalls_in_flight)
        self.citations = CitationBook(spec.input_artifacts)
        #: Subcalls that were asked and are not answered yet, by key: equal ones wait for the same answer.
        self.under_way: dict[str, asyncio.Future[SubcallFinished]] = {}
        #: Answers of people, by the question's ordinal.
        self.answers: dict[int, PersonAnswer] = {}
        #: Every sandbox of the tree, so that a stop reaches all of them at once.
        self.sessions: set[sandbox.Session] = set()
        #: Sandboxes that cut pages out of documents at once.
        self.cutting = asyncio.Semaphore(_CUTTING_AT_ONCE)
        #: No sandbox lives any more, or is born.
        self.is_killed = False
        self._children: dict[int, asyncio.Semaphore] = {}

    def model(self, name: str) -> Model:
        """The model of this name. What it is charged by enters the record before its first hold of this attempt."""
        found = self.models.get(name)
        if name not in self._priced:
            self._priced.add(name)
            row = found.price_row()
            self.writer.add(
                ModelPriced(
                    model=name,
                    source=row.source,
                    version=row.version,
                    provider=row.provider,
                    listed_as=row.model,
                    input_usd=row.input_usd,
                    output_usd=row.output_usd,
                    cached_input_usd=row.cached_input_usd,
                    row=row.text,
                )
            )
        return found

    def hand_in(self, digests: Iterable[str]) -> None:
        """Bring files that were kept here to where the control plane has them, before the record names them."""
        if self._hand_in is not None and self.artifacts is not None:
            for content in digests:
                self._hand_in(self.artifacts / content)

    def child_limiter(self, depth: int) -> asyncio.Semaphore:
        """Children of one depth that run at once. By depth, so that a child never waits for a place that its parent has."""
        return self._children.setdefault(depth, asyncio.Semaphore(self.settings.children_at_once))

    async def open(self, policy: sandbox.Policy) -> sandbox.Session:
        """A sandbox of the tree; none is born once the tree is being killed."""
        self._refuse_birth()
        session = await self.open_session(policy)
        self.sessions.add(session)
        if self.is_killed:
            await session.kill()
        self._refuse_birth()
        return session

    def _refuse_birth(self) -> None:
        if self.is_killed:
            raise LostAuthority("the job is being ended: no sandbox is opened for it any more")

    def kill_now(self) -> None:
        """Kill every sandbox of the tree at once, from any thread, without waiting: for when the loop may be stuck."""
        self.is_killed = True
        for session in tuple(self.sessions):
            session.kill_now()

    async def kill_sessions(self) -> tuple[int, ...]:
        """End every sandbox of the tree; returns what survived, which must be nothing."""
        self.is_killed = True
        reports = await asyncio.gather(*(session.kill() for session in list(self.sessions)))
        self.sessions.clear()
        return tuple(pid for report in reports for pid in report.survivors)
