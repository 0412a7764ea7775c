"""Keeps a REPL on its course: notices when it turns in a circle, and starts its conversation anew when that is long."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from rlm_worker.drivers.driver import Step, View
from rlm_worker.drivers.model import ModelDriver
from rlm_worker.endings import Failed
from rlm_worker.errors import JobFailed
from rlm_worker.journal import NodeJournal
from rlm_worker.progress import Finding, Patience, assess
from rlm_worker.rollover import KEPT, WorkingSet, brief, is_due, rolled_over, threshold
from rlm_worker.workbench import Workbench

#: Looks into the sandbox: a table of the variables, in words.
LookAtVariables = Callable[[], Awaitable[str]]


class Course:
    """What is watched over the turns of one REPL. All of it is decided from the record, so a resume decides the same."""

    def __init__(self, bench: Workbench, *, node: str) -> None:
        self._bench = bench
        self._node = node
        settings = bench.settings
        self._patience = Patience(
            failures=settings.repeated_failures,
            observations=settings.repeated_observations,
            empty_turns=settings.empty_turns,
        )

    @property
    def _journal(self) -> NodeJournal:
        return self._bench.journal.nodes[self._node]

    async def check(self, history: Sequence[Step], *, storm: str) -> Failed | None:
        """After a turn: record a circle, and end the job when it was told before and goes on."""
        finding = self._storm(history, storm) if storm else assess(history, self._patience)
        if finding is None:
            return None
        if finding.iterations[-1] not in self._journal.findings:
            await self._bench.writer.write(finding.event(node=self._node))
        if finding.action == "steered":
            return None
        return Failed("model_error", f"no progress ({finding.circle}): {finding.detail}")

    def _storm(self, history: Sequence[Step], storm: str) -> Finding:
        iteration = history[-1].iteration
        before = [
            found.iteration
            for found in self._journal.findings.values()
            if found.finding == "subcall_storm" and found.iteration < iteration
        ]
        return Finding(
            circle="subcall_storm",
            iterations=(*before, iteration),
            detail=storm,
            action="ended" if before else "steered",
        )

    async def roll_over(
        self,
        view: View,
        driver: ModelDriver,
        *,
        history: Sequence[Step],
        look: LookAtVariables,
        did_not_fit: bool = False,
    ) -> bool:
        """Start the conversation anew if it is due, or if the model said that it does not fit.

        Recorded before it is used: the view made after this one has it.
        """
        settings, before = self._bench.settings, driver.messages(view)
        limit = threshold(self._journal, limit=settings.rollover_tokens, most=settings.max_rollovers)
        if not did_not_fit and not is_due(before, steps=len(view.history), limit=limit):
            return False
        number = len(self._journal.rollovers) + 1
        if number > settings.max_rollovers:
            raise JobFailed(
                "model_error",
                f"the conversation started anew {settings.max_rollovers} times and is too long again: "
                "ask a narrower question, or raise max_rollovers",
            )
        covers_to = view.history[-1 - KEPT].iteration
        text = brief(await self._working_set(history, look), covers_to=covers_to, seed=view.seed)
        after = driver.messages(with_brief(view, text, covers_to=covers_to))
        event = rolled_over(
            text, node=self._node, number=number, covers_to=covers_to, before=before, after=after
        )
        said = {
            "trace_events": self._bench.writer.ref.events,
            "reason": "did_not_fit" if did_not_fit else "threshold",
        }
        await self._bench.writer.write(event.model_copy(update=said))
        return True

    async def _working_set(self, history: Sequence[Step], look: LookAtVariables) -> WorkingSet:
        node = self._journal
        variables = await look()
        await self._bench.writer.write()
        return WorkingSet(
            draft=node.draft,
            notes=tuple(proposal for proposal in node.proposals if proposal.kind == "note"),
            steers=tuple(steer.text for _, at in sorted(node.iterations.items()) for steer in at.steers),
            steps=tuple(history),
            variables=variables,
            trace_events=self._bench.writer.ref.events,
        )


def with_brief(view: View, text: str, *, covers_to: int) -> View:
    """The view of the conversation that begins with this brief."""
    later = tuple(step for step in view.history if step.iteration > covers_to)
    return replace(view, brief=text, history=later)
