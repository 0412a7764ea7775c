"""Answers everything a cell asks of its host. Each name is declared here; nothing else exists for the cell."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import cached_property

from pydantic import JsonValue, TypeAdapter

import sandbox
from rlm_worker.cells import network_of
from rlm_worker.citations import mistakes_of
from rlm_worker.contracts import JobSpec, JsonObject, digest
from rlm_worker.contracts.job import Dimension
from rlm_worker.contracts.keeping import ClockRead
from rlm_worker.contracts.trace import (
    DraftRecorded,
    HostCallFinished,
    SubmitAccepted,
    SubmitRejected,
)
from rlm_worker.crashpoints import crash_here
from rlm_worker.errors import BadCall, BudgetExceeded, CallRefused, MustPark, NotAsked, RequestRefused
from rlm_worker.execution import Execution
from rlm_worker.meter import Meter, transferred
from rlm_worker.people import People
from rlm_worker.proposals import Proposals
from rlm_worker.redaction import redact_json
from rlm_worker.schemas import shape_of
from rlm_worker.storms import StormWatch
from rlm_worker.subcalls import Subcalls
from rlm_worker.workbench import Workbench

Answer = Callable[[Execution, JsonObject], Awaitable[JsonValue]]

CALLS = frozenset(
    {
        "predict",
        "predict_batch",
        "rlm_query",
        "submit",
        "draft",
        "budget",
        "note",
        "propose_effect",
        "remember",
        "params",
        "question",
        "progress",
        "network",
        "ask",
    }
)

_DIMENSION: TypeAdapter[Dimension] = TypeAdapter(Dimension)
_ASKED_CHARACTERS = 500
#: Refusals of one and the same call that a cell may have in the record; a cell that goes on is not repeatable.
_REFUSALS_KEPT = 100


class SubmitRefused(CallRefused):
    """The submitted fields do not fit; the cell may try again."""

    guest_error = "SubmitRejected"


class HostCalls:
    """The host side of one REPL."""

    def __init__(self, bench: Workbench, spec: JobSpec, *, meter: Meter, ask_child: Answer) -> None:
        self._bench = bench
        self._spec = spec
        self._meter = meter
        self.submitted: JsonObject | None = None
        self.draft: JsonObject | None = None
        #: The latest refusal for a limit; when it escapes the cell, it names what ended the job.
        self.last_refusal: BudgetExceeded | None = None
        #: Whether the cell was left in the middle, to wait.
        self.was_cut = False
        settings = bench.settings
        self.watch = StormWatch(similar=settings.similar_subcalls, failing=settings.failing_subcalls)
        subcalls = Subcalls(bench, meter, watch=self.watch)
        proposals = Proposals(bench, spec, meter=meter)
        self._answers: dict[str, Answer] = {
            "predict": subcalls.predict,
            "predict_batch": subcalls.predict_batch,
            "rlm_query": ask_child,
            "submit": self._submit,
            "draft": self._draft,
            "budget": self._budget,
            "note": proposals.note,
            "propose_effect": proposals.effect,
            "remember": proposals.memory,
            "params": self._params,
            "question": self._question,
            "progress": self._progress,
            "network": self._network,
            "ask": People(bench, meter).ask,
        }
        assert set(self._answers) == CALLS

    async def answer(self, at: Execution, name: str, payload: JsonObject) -> JsonValue:
        """The answer to one call; raises CallRefused with what the cell is told."""
        payload_digest = digest(payload)
        calls_before = at.count(name, payload_digest)
        recorded = at.refusal(name, payload_digest, calls_before)
        try:
            if recorded is not None:
                raise _recall(recorded)
            return await self._answers[name](at, payload)
        except MustPark:
            self.was_cut = True
            await self._bench.waiting.quiet()
            raise
        except (BudgetExceeded, NotAsked, RequestRefused) as refusal:
            if isinstance(refusal, BudgetExceeded):
                self.last_refusal = refusal
                if recorded is None and at.live:
                    await self._ask_for_more(refusal)
            is_kept = calls_before < _REFUSALS_KEPT or isinstance(refusal, RequestRefused)
            if recorded is None and at.live and is_kept:
                told = _told(refusal) | {"calls_before": calls_before}
                asked = _asked(payload) if name == "network" else None
                await self._record(at, name, payload_digest, told, error=str(refusal), request=asked)
            raise

    async def _ask_for_more(self, refusal: BudgetExceeded) -> None:
        """Where that is wanted the job waits at its limit: the cell is cut here and asks again under the next one."""
        if self._spec.on_limit == "ask" and refusal.of_job:
            self.was_cut = True
            wait = self._bench.waiting.must(MustPark("budget", str(refusal)))
            await self._bench.waiting.quiet()
            raise wait from refusal

    def keep_clock(self, at: Execution, read: tuple[int, ...]) -> None:
        """Record what a cell read from its clock, ahead of what it asks next."""
        if at.live:
            self._bench.writer.add_later(ClockRead(node=at.node, iteration=at.iteration, read=read))

    async def _record(
        self,
        at: Execution,
        name: str,
        payload_digest: str,
        answer: JsonObject,
        *,
        error: str = "",
        request: JsonObject | None = None,
    ) -> None:
        await self._bench.writer.write(
            HostCallFinished(
                node=at.node,
                iteration=at.iteration,
                ordinal=self._bench.journal.take_ordinal(),
                name=name,
                payload_digest=payload_digest,
                request=request,
                answer=answer,
                ok=not error,
                error=error,
            )
        )

    async def _submit(self, at: Execution, payload: JsonObject) -> JsonValue:
        fields = _fields(payload)
        mistakes = shape_of(self._spec.output_schema).mistakes(fields) or await asyncio.to_thread(
            self._miscited, fields
        )
        if mistakes:
            if at.live:
                self._meter.count_host_call()
                await self._bench.writer.write(
                    SubmitRejected(node=at.node, iteration=at.iteration, fields=fields, errors=mistakes)
                )
            raise SubmitRefused("SUBMIT was not accepted: " + "; ".join(mistakes))
        if at.live:
            await self._bench.writer.write(
                SubmitAccepted(node=at.node, iteration=at.iteration, fields=fields)
            )
            crash_here("submit.after_record")
        self.submitted = fields
        return {"accepted": True}

    def _miscited(self, fields: JsonObject) -> tuple[str, ...]:
        """What is wrong with the citations. On a thread: counting the lines of large evidence takes its time."""
        return mistakes_of(self._bench.citations.report(fields, self._spec.output_schema))

    async def _draft(self, at: Execution, payload: JsonObject) -> JsonValue:
        fields = _fields(payload)
        mistakes = shape_of(self._spec.output_schema).mistakes(fields)
        if mistakes:
            raise BadCall("DRAFT was not kept, it must fit the answer's fields: " + "; ".join(mistakes))
        self.draft = fields
        if at.live:
            self._meter.count_host_call()
            await self._bench.writer.write(DraftRecorded(node=at.node, iteration=at.iteration, fields=fields))
        return {"kept": True}

    async def _budget(self, at: Execution, payload: JsonObject) -> JsonValue:
        asked = digest(payload)
        recorded = at.host_call("budget", asked)
        if recorded is not None:
            return recorded.answer
        at.must_be_live("a budget() call")
        self._meter.count_host_call()
        left: JsonObject = dict(self._meter.left())
        await self._record(at, "budget", asked, left)
        return left

    async def _network(self, at: Execution, payload: JsonObject) -> JsonValue:
        """One request, made by the host and in the record before the cell sees its answer."""
        asked = digest(payload)
        recorded = at.host_call("network", asked)
        if recorded is not None:
            return recorded.answer
        at.must_be_live("a request to the network")
        self._meter.count_host_call()
        try:
            answer = _cleaned(await self._proxy.answer(payload))
        except sandbox.NetworkRefused as refusal:
            raise RequestRefused(str(refusal)) from refusal
        self._meter.count_transfer(transferred(answer))
        await self._record(at, "network", asked, answer, request=payload)
        return answer

    @cached_property
    def _proxy(self) -> sandbox.Proxy:
        return sandbox.Proxy(network_of(self._spec))

    async def _params(self, at: Execution, payload: JsonObject) -> JsonValue:  # noqa: ARG002
        return self._spec.params

    async def _question(self, at: Execution, payload: JsonObject) -> JsonValue:  # noqa: ARG002
        return self._spec.task

    async def _progress(self, at: Execution, payload: JsonObject) -> JsonValue:  # noqa: ARG002
        return None


def _asked(payload: JsonObject) -> JsonObject:
    """Where a refused request wanted to go, as far as it can be said: all of it is the cell's word."""
    return {name: str(payload.get(name))[:_ASKED_CHARACTERS] for name in ("method", "url")}


def _told(refusal: CallRefused) -> JsonObject:
    """A refusal as it goes into the record."""
    if isinstance(refusal, RequestRefused):
        return {"refused": "network"}
    if not isinstance(refusal, BudgetExceeded):
        return {"refused": "not_asked"}
    return {
        "refused": refusal.dimension,
        "limit": str(refusal.limit),
        "spent": str(refusal.spent),
        "detail": refusal.detail,
    }


def _recall(recorded: HostCallFinished) -> CallRefused:
    """The refusal that was recorded, to be raised again."""
    said = recorded.answer if isinstance(recorded.answer, dict) else {}
    if said.get("refused") == "network":
        return RequestRefused(recorded.error)
    if said.get("refused") == "not_asked":
        return NotAsked(recorded.error)
    dimension: Dimension = _DIMENSION.validate_python(said.get("refused"))
    return BudgetExceeded(
        dimension, limit=said.get("limit"), spent=said.get("spent"), detail=str(said.get("detail", ""))
    )


def _fields(payload: JsonObject) -> JsonObject:
    fields = payload.get("fields")
    if not isinstance(fields, dict):
        raise BadCall("fields are given by name: SUBMIT(answer=…)")
    return _cleaned(fields)


def _cleaned(value: JsonObject) -> JsonObject:
    """Without secrets: what is recorded is what is used."""
    cleaned = redact_json(value)
    assert isinstance(cleaned, dict)
    return cleaned
