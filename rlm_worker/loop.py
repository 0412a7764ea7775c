"""The turn loop of one REPL: turn, cell, observation, until SUBMIT, a limit or a failure. Resumes by re-execution."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import sandbox
from rlm_worker.artifacts import collect_artifacts
from rlm_worker.available import refuse_unavailable
from rlm_worker.cell_errors import check_crash, playbook_error
from rlm_worker.cells import run_cell, session_policy
from rlm_worker.children import Children
from rlm_worker.closing import Closing, CutShort, exhausted_by
from rlm_worker.comparing import difference
from rlm_worker.contracts import JobSpec
from rlm_worker.contracts.gateway import Steer
from rlm_worker.contracts.keeping import Diverged
from rlm_worker.contracts.trace import (
    CellFinished,
    CellProposed,
    CellRejected,
    SandboxOpened,
)
from rlm_worker.course import Course
from rlm_worker.crashpoints import crash_here
from rlm_worker.drivers.driver import Cell, Driver, Finished, NoCell, Step, Turn, View
from rlm_worker.drivers.model import ModelDriver
from rlm_worker.drivers.recording import RecordingDriver, recorded_step
from rlm_worker.endings import Ending, Exhausted, Failed, Submitted, Waits
from rlm_worker.errors import BudgetExceeded, JobFailed, MustPark, TurnDeclined, TurnTooLong
from rlm_worker.execution import Execution, is_repeatable
from rlm_worker.extraction import extract
from rlm_worker.hostcalls import CALLS, HostCalls
from rlm_worker.meter import Meter
from rlm_worker.redaction import redact_text
from rlm_worker.root import open_driver
from rlm_worker.steers import observe_steers
from rlm_worker.variables import look_at_variables
from rlm_worker.views import make_view
from rlm_worker.workbench import Workbench

_DECLINED = "the model declined to write this turn"


class Repl:
    """One REPL and its sandbox: the job's own, or a child's."""

    def __init__(self, bench: Workbench, spec: JobSpec, *, node: str = "", meter: Meter) -> None:
        self.bench = bench
        self.spec = spec
        self.node = node
        self.meter = meter
        self.steers: Callable[[], tuple[Steer, ...]] = tuple
        self._journal = bench.journal.nodes[node]
        self._recording = RecordingDriver(self._journal)
        self._driver: Driver = open_driver(bench, spec, node=node, meter=meter)
        children = Children(bench, spec, meter=meter, run=self._run_child)
        self.host = HostCalls(bench, spec, meter=meter, ask_child=children.ask)
        self._course = Course(bench, node=node)
        #: What the last cell's subcalls came to, when that was a storm.
        self._storm = ""
        self._session: sandbox.Session | None = None
        self._history: list[Step] = []
        self.closing = Closing(
            bench.writer,
            self._journal,
            node=node,
            meter=meter,
            has_turn=self._driver.kind == "model",
            asks=spec.on_limit == "ask",
        )
        #: When everything must be over.
        self._deadline: asyncio.Timeout | None = None

    def retuned(self) -> None:
        """The limits are others now: what waits for the time to be over waits for another time."""
        self.closing.retuned()
        if self._deadline is not None:
            loop = asyncio.get_running_loop()
            self._deadline.reschedule(loop.time() + max(0.0, self.meter.hard_seconds_left()))

    async def run(self) -> Ending:
        """Work until an ending. The sandbox is gone when this returns."""
        try:
            ending = await self._within_limits()
            if not isinstance(ending, Submitted):
                ending = await self._unless_submitted(ending)
            if isinstance(ending, Exhausted) and self._journal.exhausted is None:
                await self.closing.record(ending)
            ending = await self._extracted(ending)
            if not isinstance(ending, Waits):
                await self._collect()
            return ending
        finally:
            await asyncio.shield(self._drop_session())

    async def _collect(self) -> None:
        """Once, from the job's own workspace: a child's answer is all that its parent gets."""
        if self.node == "" and self._session is not None and self.bench.journal.collected is None:
            await collect_artifacts(self.bench, self.spec, self._session)

    async def _unless_submitted(self, ending: Ending) -> Ending:
        """A SUBMIT that was recorded wins, whatever ended the cell after it."""
        await self.bench.writer.write()
        fields = self._journal.submitted
        return ending if fields is None else self.closing.accepted(fields)

    async def _extracted(self, ending: Ending) -> Ending:
        """The last resort, for the job's own answer: without SUBMIT and DRAFT, one typed call over the history."""
        if self.node or not self.closing.has_turn or self._journal.draft is not None:
            return ending
        return await extract(self.bench, self.spec, ending, meter=self.meter)

    async def _within_limits(self) -> Ending:
        try:
            async with asyncio.timeout(max(0.0, self.meter.hard_seconds_left())) as self._deadline:
                return await self._until_ended()
        except TimeoutError:
            limit = f"{self.meter.budget.max_wall_time_ms / 1000:g} s"
            return self._at_limit(
                BudgetExceeded("wall_time", limit=limit, spent=limit, of_job=self.node == "")
            )
        except BudgetExceeded as refusal:
            return self._at_limit(refusal)
        except MustPark as wait:
            return Waits(wait.reason, wait.detail, wait.not_before)
        except JobFailed as failed:
            return Failed(failed.failure_class, str(failed))

    def _at_limit(self, refusal: BudgetExceeded) -> Ending:
        if self.closing.why is not None:
            return self.closing.why
        try:
            self.closing.ask_for_more(refusal)
        except MustPark as wait:
            return Waits(wait.reason, wait.detail)
        return exhausted_by(refusal)

    async def _until_ended(self) -> Ending:
        if self._journal.submitted is not None:
            return Submitted(self._journal.submitted)
        if self.closing.is_over and self.closing.why is not None:
            return self.closing.why
        await self._open("resume" if self._journal.iterations else "start")
        if self._history and self.closing.why is None and self._driver.kind == "model":
            circle = await self._course.check(self._history, storm=self._storm)
            if circle is not None:
                return circle
        while True:
            ending = await self._iterate(len(self._history) + 1)
            if ending is not None:
                return ending

    async def _iterate(self, iteration: int) -> Ending | None:
        self.bench.waiting.check()
        if iteration not in self._journal.iterations:
            await self.closing.begin_if_asked()
            self.meter.begin_iteration()
        await observe_steers(self.bench, self.steers(), node=self.node, iteration=iteration)
        self._seen = self._view(iteration)
        turn = await self._recording.next(self._seen)
        is_new = isinstance(turn, Finished)
        if is_new:
            turn = await self._new_turn()
        if isinstance(turn, Finished):
            return self._out_of_cells()
        if isinstance(turn, NoCell):
            return await self._reject(iteration, turn, is_new=is_new)
        return await self._run_turn(iteration, turn, is_new=is_new)

    async def _new_turn(self) -> Turn:
        await self._start_anew()
        try:
            return await self._next_turn()
        except CutShort:
            if not self._history:
                return Finished()  # nothing was found yet that could be submitted
            await self.closing.begin_if_asked()
        except BudgetExceeded as refusal:
            if self.closing.why is not None:
                raise
            self.closing.ask_for_more(refusal)
            await self.closing.begin(exhausted_by(refusal))
        self._seen = self._view(self._seen.iteration)
        return await self._next_turn()

    async def _start_anew(self, *, did_not_fit: bool = False) -> None:
        """With a new conversation, where the one there is has become too long."""
        if isinstance(self._driver, ModelDriver) and await self._course.roll_over(
            self._seen, self._driver, history=self._history, look=self._look, did_not_fit=did_not_fit
        ):
            self._seen = self._view(self._seen.iteration)

    async def _next_turn(self) -> Turn:
        """A refusal is an observation for the next turn; two in a row are the model's last word."""
        try:
            return await self.closing.unless_cut(self._driver.next(self._seen))
        except TurnTooLong:
            await self._start_anew(did_not_fit=True)
            return await self._next_turn()
        except TurnDeclined as declined:
            last = self._history[-1].turn if self._history else None
            if isinstance(last, NoCell) and last.reason.startswith(_DECLINED):
                raise JobFailed("model_error", f"declined twice in a row: {declined}") from declined
            return NoCell(reason=f"{_DECLINED}: {declined}. Go on with the task in other words.")

    async def _look(self) -> str:
        """What the variables are, as a new conversation is told. A look that kills the sandbox costs the sandbox."""
        assert self._session is not None
        table, is_lost = await look_at_variables(self._session)
        if is_lost:
            await self._open("state_lost")
        return table

    def _remember(self, turn: Cell | NoCell, *, outcome: CellFinished | None = None) -> None:
        """Enter a turn into the history, with all it was asked with and all that was said."""
        view = self._seen
        asked = self._journal.at(view.iteration).asked
        self._history.append(
            Step(
                iteration=view.iteration,
                turn=turn,
                said=asked.text if asked else "",
                outcome=outcome,
                notices=view.notices,
                left=view.left,
            )
        )

    async def _reject(self, iteration: int, turn: NoCell, *, is_new: bool) -> Ending | None:
        if is_new:
            await self.bench.writer.write(
                CellRejected(node=self.node, iteration=iteration, reason=turn.reason)
            )
        self._remember(turn)
        return self.closing.why or await self._course.check(self._history, storm="")

    async def _run_turn(self, iteration: int, turn: Cell, *, is_new: bool) -> Ending | None:
        if is_new:
            # What is recorded is what runs: a secret in it is in neither.
            turn = replace(turn, code=redact_text(turn.code))
            await self.bench.writer.write(
                CellProposed(
                    node=self.node,
                    iteration=iteration,
                    driver=self._driver.kind,
                    reasoning=turn.reasoning,
                    code=turn.code,
                )
            )
        crash_here("cell.before_run")
        cell = await self._execute(iteration, turn.code, live=True)
        # A cell that was left in the middle, to wait, is no outcome: it runs again from the record.
        if self.host.was_cut or (cell.state_lost and self.bench.is_killed):
            self.bench.waiting.check()
        crash_here("cell.before_record")
        # Durable before anything leaves that could come of it: the next request to a model, or the result.
        self.bench.writer.add_later(cell)
        self.meter.count_cell(
            output_bytes=cell.stdout_bytes + cell.stderr_bytes,
            cpu_ms=cell.cpu_ms,
            memory_bytes=cell.memory_bytes,
        )
        self._remember(turn, outcome=cell)
        return await self._after_cell(cell)

    async def _after_cell(self, cell: CellFinished) -> Ending | None:
        storm = self._storm
        if self.host.submitted is not None:
            return self.closing.accepted(self.host.submitted)
        if self.closing.why is not None:
            return self.closing.why
        await self.closing.begin_if_asked()
        await self._weigh(cell)
        if cell.state_lost:
            await self._open("state_lost")
        if self._driver.kind == "model":
            return await self._after_models_cell(cell, storm)
        if cell.outcome == "error":
            return playbook_error(
                self._driver, cell, refusal=self.host.last_refusal, memory_limit=self._memory_limit
            )
        return await self._course.check(self._history, storm=storm) if storm else None

    async def _after_models_cell(self, cell: CellFinished, storm: str) -> Ending | None:
        if self.closing.why is not None:
            return None
        if cell.error_type == "BudgetExceeded" and cell.outcome == "error":
            refusal = self.host.last_refusal
            await self.closing.begin(exhausted_by(refusal) if refusal else Exhausted("subcalls", "?", "?"))
            return None
        return await self._course.check(self._history, storm=storm)

    async def _weigh(self, cell: CellFinished) -> None:
        """Limits that a cell can pass while it runs: a playbook ends there, a model has its closing turn."""
        try:
            if cell.state_lost:
                check_crash(
                    cell, memory_limit=self._memory_limit, cpu_ms=self.meter.budget.max_sandbox_cpu_ms
                )
            self.meter.check_cell()
        except BudgetExceeded as refusal:
            self.closing.ask_for_more(refusal)
            if not self.closing.has_turn:
                raise
            if self.closing.why is None:
                await self.closing.begin(exhausted_by(refusal))

    def _out_of_cells(self) -> Ending:
        return Failed("output_invalid", f"the {self._driver.kind} ended without SUBMIT")

    @property
    def _memory_limit(self) -> int:
        return min(self.spec.sandbox_policy.memory_bytes, self.meter.budget.max_sandbox_memory_bytes)

    def _view(self, iteration: int) -> View:
        return make_view(
            self.spec,
            self._journal,
            node=self.node,
            iteration=iteration,
            history=self._history,
            left=dict(self.meter.left()),
            closing="" if self.closing.why is None else self.closing.notice(),
        )

    async def _execute(self, iteration: int, code: str, *, live: bool) -> CellFinished:
        assert self._session is not None
        self.host.was_cut = False
        at = Execution(self._journal.at(iteration), node=self.node, live=live)
        # A cell that is only repeated is not stopped early: it would do something else than before.
        with self.closing.stopping(self._session) if live else nullcontext():
            cell = await run_cell(
                self._session,
                code,
                at=at,
                answer=self.host.answer,
                seconds=self.spec.sandbox_policy.cell_seconds,
                keep_clock=self.host.keep_clock,
            )
        self._storm = self.host.watch.take()
        return cell

    async def _open(self, reason: str) -> None:
        """A new sandbox, and in it everything the recorded cells had built."""
        await self._drop_session()
        refuse_unavailable(self.bench, self.spec)
        try:
            session = await self.bench.open(session_policy(self.spec, calls=CALLS))
        except sandbox.SandboxUnavailable as error:
            raise JobFailed("backend_unavailable", str(error)) from error
        except sandbox.PolicyError as error:
            raise JobFailed("invalid_request", str(error)) from error
        self._session = session
        said = {"node": self.node, "backend": self.spec.sandbox_policy.backend, "layers": session.layers}
        await self.bench.writer.write(SandboxOpened.model_validate({**said, "reason": reason}))
        await self._rebuild()

    async def _rebuild(self) -> None:
        """Re-execute finished cells with their recorded answers; what differs is a finding."""
        await self.bench.writer.write()
        told = {step.iteration: step for step in self._history}
        self._history = []
        self.host.watch.restart()
        for iteration in sorted(self._journal.iterations):
            step = told.get(iteration) or recorded_step(self._journal, iteration)
            if step is None:
                continue
            self._history.append(step)
            if step.outcome is not None and is_repeatable(step.outcome):
                assert isinstance(step.turn, Cell)
                await self._repeat(step.outcome, step.turn.code)

    async def _repeat(self, before: CellFinished, code: str) -> None:
        again = await self._execute(before.iteration, code, live=False)
        if again.state_lost:
            raise JobFailed(
                "sandbox_fatal", f"rebuilding iteration {before.iteration} failed: {again.error_message}"
            )
        apart = difference(before, again)
        if apart is not None:
            await self.bench.writer.write(
                Diverged(
                    node=self.node,
                    iteration=before.iteration,
                    expected=before.digest,
                    got=again.digest,
                    detail=f"a re-executed cell differs from its record, {apart}",
                )
            )

    async def _drop_session(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            self.bench.sessions.discard(session)
            await session.close()

    async def _run_child(self, spec: JobSpec, node: str, meter: Meter) -> Ending:
        return await Repl(self.bench, spec, node=node, meter=meter).run()
