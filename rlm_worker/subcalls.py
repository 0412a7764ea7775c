"""Answers predict(): from the journal when it can, else hold, ask, check, repair, settle. One limiter per job tree."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import JsonValue

from rlm_worker.admission import admit
from rlm_worker.calls import Call, read_call, read_calls
from rlm_worker.contracts import JsonObject
from rlm_worker.contracts.trace import (
    ChildFinished,
    Hold,
    Spend,
    SubcallFinished,
    SubcallLost,
)
from rlm_worker.crashpoints import crash_here
from rlm_worker.errors import BadCall, BudgetExceeded, MustPark, NotAsked, SubcallFailed
from rlm_worker.execution import Execution
from rlm_worker.meter import Meter
from rlm_worker.models import Completion, Model
from rlm_worker.models.errors import ModelError, RateLimited
from rlm_worker.pending import Pending, failed, finished, started, total
from rlm_worker.prompts import predict_messages, repair_messages
from rlm_worker.recovery import parking, remedy
from rlm_worker.redaction import redact
from rlm_worker.storms import StormWatch, SubcallStorm
from rlm_worker.workbench import Workbench

#: Rows of a batch whose holds are written together, and rows that may be held and unanswered.
_GROUP = 64
_WINDOW = 256


@dataclass(frozen=True, kw_only=True)
class Row:
    """One answer to hand to the cell."""

    finished: SubcallFinished
    cached: bool = False


class Subcalls:
    """The predict() of one REPL."""

    def __init__(self, bench: Workbench, meter: Meter, *, watch: StormWatch) -> None:
        self._bench = bench
        self._meter = meter
        self._watch = watch

    async def predict(self, at: Execution, payload: JsonObject) -> JsonValue:
        """One typed call; raises SubcallFailed or BudgetExceeded."""
        call = read_call(payload, inputs=payload.get("inputs"), models=self._bench.predict_models)
        row = self._known(at, call)
        if row is None:
            at.must_be_live("a predict() call")
            self._watch.check()
            call = await self._admitted(call)
        self._watch.count(call.key, schema=call.schema, inputs=call.inputs)
        if row is None:
            row = Row(finished=await self._once(at, call))
        self._watch.hear(ok=row.finished.ok)
        if not row.finished.ok:
            raise SubcallFailed(row.finished.error)
        return {**_answer(_labelled(at, row)), "schema": call.schema, "model": call.model}

    async def predict_batch(self, at: Execution, payload: JsonObject) -> JsonValue:
        """Many typed calls; failed rows are values, a batch that cannot fit is refused before anything is spent."""
        rows = payload.get("rows")
        if not isinstance(rows, list):
            raise BadCall("predict_batch needs rows: a list of inputs")
        calls = read_calls(payload, rows=rows, models=self._bench.predict_models)
        known: dict[str, Row] = {}
        for call in calls:
            if call.key not in known and (row := self._known(at, call)) is not None:
                known[call.key] = row
                self._watch.count(call.key, schema=call.schema, inputs=call.inputs)
                self._watch.hear(ok=row.finished.ok)
        asked: list[Call] = []
        wanted = list({call.key: call for call in calls if call.key not in known}.values())
        if wanted:
            at.must_be_live(f"a batch of {len(wanted)} predict() calls")
            self._refuse_oversized(payload, wanted)
            for call, ready in zip(wanted, await admit(self._bench, wanted), strict=True):
                if isinstance(ready, NotAsked):
                    known[call.key] = Row(finished=self._unheld(at, call, ready))
                else:
                    asked.append(ready)
            known |= await self._many(at, asked)
        known = {key: _labelled(at, row) for key, row in known.items()}
        first = calls[0] if calls else None
        return {
            "results": [_result(known[call.key]) for call in calls],
            "schema": first.schema if first else {},
            "model": first.model if first else "",
        }

    async def _admitted(self, call: Call) -> Call:
        """The call with all that it sends."""
        ready = (await admit(self._bench, [call]))[0]
        if isinstance(ready, NotAsked):
            raise ready
        return ready

    def _refuse_oversized(self, payload: JsonObject, wanted: Sequence[Call]) -> None:
        total = payload.get("total_rows")
        count = max(len(wanted), total if isinstance(total, int) else 0)
        refusal = self._meter.can_hold(Hold(subcalls=count))
        if refusal is not None:
            left = self._meter.left()["subcalls"]
            raise BudgetExceeded(
                refusal.dimension,
                limit=refusal.limit,
                spent=refusal.spent,
                of_job=refusal.of_job,
                detail=f"this batch needs {count} subcalls and {left} are left; nothing was spent: send fewer rows",
            )

    def _known(self, at: Execution, call: Call) -> Row | None:
        recorded = at.outcome(call.key)
        if isinstance(recorded, SubcallFinished):
            return Row(finished=recorded)
        assert not isinstance(recorded, ChildFinished), "subcall and child keys differ"
        answered = self._bench.journal.answers.get(call.key)
        if answered is None:
            return None
        self._meter.count_cached()
        return Row(finished=answered, cached=True)

    async def _once(self, at: Execution, call: Call) -> SubcallFinished:
        """Ask, unless the same call is already under way."""
        if (shared := self._bench.under_way.get(call.key)) is not None:
            return await asyncio.shield(shared)
        self._bench.waiting.check()
        with self._under_way([call]):
            async with self._bench.limiter:
                crash_here("subcall.before_hold")
                pending = self._hold(call, self._model(call))
                await self._bench.writer.write(started(at, pending))
                finished = await self._ask(at, pending)
                await self._bench.writer.write(finished)
            crash_here("subcall.after_record")
            self._bench.under_way[call.key].set_result(finished)
            return finished

    @contextmanager
    def _under_way(self, calls: Sequence[Call]) -> Iterator[None]:
        """Announce calls; whoever waits for one that fails here is told, whatever the reason."""
        loop = asyncio.get_running_loop()
        mine = {call.key: loop.create_future() for call in calls}
        self._bench.under_way |= mine
        try:
            yield
        finally:
            for key, future in mine.items():
                del self._bench.under_way[key]
                if not future.done():
                    future.set_exception(
                        SubcallFailed("the same call was made elsewhere in the job and had no answer")
                    )
                    future.exception()  # read once: nobody may be waiting

    async def _many(self, at: Execution, calls: Sequence[Call]) -> dict[str, Row]:
        """Ask side by side. Holds are durable before their calls leave; answers before the cell sees any."""
        shared = {
            call.key: self._bench.under_way[call.key] for call in calls if call.key in self._bench.under_way
        }
        rows: dict[str, Row] = {}
        with self._under_way([call for call in calls if call.key not in shared]):
            await self._fan_out(at, [call for call in calls if call.key not in shared], rows)
            await self._bench.writer.write()
            self._bench.waiting.check()
            for key, row in rows.items():
                self._bench.under_way[key].set_result(row.finished)
        for key, future in shared.items():
            rows[key] = Row(finished=await asyncio.shield(future))
        return rows

    async def _fan_out(self, at: Execution, calls: Sequence[Call], rows: dict[str, Row]) -> None:
        window = asyncio.Semaphore(_WINDOW)

        async def one(pending: Pending) -> None:
            try:
                async with self._bench.limiter:
                    finished = self._unasked(at, pending) or await self._ask(at, pending)
            except MustPark:
                return  # the others under way are let finish first
            finally:
                window.release()
            rows[pending.call.key] = Row(finished=finished)
            self._watch.hear(ok=finished.ok)
            self._bench.writer.add_later(finished)

        async with asyncio.TaskGroup() as tasks:
            for group in _groups(calls, _GROUP):
                if self._bench.waiting.is_wanted:
                    return
                held: list[Pending] = []
                for call in group:
                    await window.acquire()
                    try:
                        self._watch.check()
                        self._watch.count(call.key, schema=call.schema, inputs=call.inputs)
                        held.append(self._hold(call, self._model(call)))
                    except (BudgetExceeded, SubcallStorm) as refusal:
                        rows[call.key] = Row(finished=self._unheld(at, call, refusal))
                        window.release()
                await self._bench.writer.write(*(started(at, pending) for pending in held))
                for pending in held:
                    tasks.create_task(one(pending))

    def _unasked(self, at: Execution, pending: Pending) -> SubcallFinished | None:
        """A row that was held when a storm broke out: its request does not leave."""
        try:
            self._watch.check()
        except SubcallStorm as storm:
            self._meter.settle(pending.ordinal, Spend())
            return finished(
                at, pending, error=str(storm), error_class=storm.guest_error, requests=0, spend=Spend()
            )
        return None

    def _unheld(self, at: Execution, call: Call, refusal: BudgetExceeded | NotAsked) -> SubcallFinished:
        """A row that the budget no longer reached, a storm, or one that cannot be sent: recorded, so that a repeated cell sees it refused again."""
        finished = SubcallFinished(
            node=at.node,
            iteration=at.iteration,
            ordinal=self._bench.journal.take_ordinal(),
            key=call.key,
            model=call.model,
            ok=False,
            error_class=refusal.guest_error,
            error=str(refusal),
            requests=0,
            spend=Spend(),
        )
        self._bench.writer.add(finished)
        return finished

    def _model(self, call: Call) -> Model:
        try:
            return self._bench.model(call.model)
        except ModelError as error:
            raise NotAsked(str(error)) from error

    def _hold(self, call: Call, model: Model, *, subcalls: int = 1) -> Pending:
        messages = predict_messages(
            fields=call.fields, inputs=call.inputs, instructions=call.instructions, media=call.media
        )
        guess = model.estimate(messages, max_output_tokens=call.max_output_tokens, schema=call.schema)
        repairs = self._bench.settings.repairs
        ordinal = self._bench.journal.take_ordinal()
        while True:
            times = 1 + repairs
            hold = Hold(
                subcalls=subcalls,
                input_tokens=guess.input_tokens * times + repairs * (guess.output_tokens + 200),
                output_tokens=guess.output_tokens * times,
                cost_usd=None
                if guess.cost_usd is None
                else guess.cost_usd * times * 2
                if repairs
                else guess.cost_usd,
            )
            try:
                self._meter.hold(ordinal, hold, model=call.model)
            except BudgetExceeded:
                if repairs == 0:
                    raise
                repairs = 0
                continue
            return Pending(
                call=call, ordinal=ordinal, hold=hold, model=model, messages=messages, repairs=repairs
            )

    async def _ask(self, at: Execution, pending: Pending) -> SubcallFinished:
        """The answer as it goes into the record; every hold is settled whatever happens."""
        crash_here("subcall.after_hold")
        began, tries = time.monotonic(), 0
        while True:
            finished, error = await self._try(at, pending)
            if error is None:
                break
            again = self._again(pending, error, tries=tries)
            if again is None:
                break
            tries += 1
            await self._bench.writer.write(self._lost(at, pending), started(at, again))
            pending = again
        crash_here("subcall.after_answer")
        finished = finished.model_copy(update={"duration_ms": int((time.monotonic() - began) * 1000)})
        self._meter.settle(pending.ordinal, finished.spend)
        return redact(finished)

    async def _try(self, at: Execution, pending: Pending) -> tuple[SubcallFinished, ModelError | None]:
        """One request and its repairs, under one hold."""
        try:
            self._bench.waiting.check()
            with self._bench.waiting.call():
                return await self._checked(at, pending), None
        except RateLimited as error:
            if (
                remedy(error, tries=0, settings=self._bench.settings, parks=self._bench.journal.parks)
                == "park"
            ):
                self._let_go(at, pending)
                raise self._bench.waiting.must(parking(error)) from error
            return failed(at, pending, error), error
        except ModelError as error:
            return failed(at, pending, error), error
        except MustPark:
            self._let_go(at, pending)
            raise
        except BaseException:
            # The request may have been answered and billed: the hold is charged.
            self._bench.writer.add(self._lost(at, pending))
            raise

    def _again(self, pending: Pending, error: ModelError, *, tries: int) -> Pending | None:
        """The same call under a new hold, when the error asks for it and time and budget allow."""
        wanted = remedy(error, tries=tries, settings=self._bench.settings, parks=self._bench.journal.parks)
        if wanted != "ask_again" or self._meter.seconds_left() <= 0:
            return None
        try:
            return self._hold(pending.call, pending.model, subcalls=0)
        except BudgetExceeded:
            return None

    def _lost(self, at: Execution, pending: Pending) -> SubcallLost:
        """The outcome is unknown: the hold is charged."""
        charged = self._meter.charge(pending.ordinal)
        return SubcallLost(node=at.node, ordinal=pending.ordinal, key=pending.call.key, charged=charged)

    def _let_go(self, at: Execution, pending: Pending) -> None:
        """The call never counted: it is asked when the wait is over."""
        self._meter.release(pending.ordinal)
        self._bench.writer.add(
            SubcallLost(node=at.node, ordinal=pending.ordinal, key=pending.call.key, charged=Hold())
        )

    async def _checked(self, at: Execution, pending: Pending) -> SubcallFinished:
        call, shape = pending.call, pending.call.shape
        messages, requests, completions = pending.messages, 0, list[Completion]()
        for _ in range(1 + pending.repairs):
            asked = await self._bench.models.ask(
                pending.model,
                messages,
                schema=call.schema,
                max_output_tokens=call.max_output_tokens,
                seconds=max(0.01, self._meter.seconds_left()),
            )
            requests += asked.requests
            completions.append(asked.completion)
            value = asked.completion.value
            if value is not None and shape.fits(value):
                spend, probability = total(completions), asked.completion.probability
                return finished(
                    at, pending, value=value, probability=probability, requests=requests, spend=spend
                )
            mistakes = () if value is None else shape.mistakes(value)
            messages = repair_messages(pending.messages, answer=asked.completion.text, mistakes=mistakes)
        told = "; ".join(mistakes) or "it is not a JSON object"
        return finished(
            at,
            pending,
            error=f"{call.model} gave no answer of the asked type in {requests} tries: {told}",
            error_class="InvalidAnswer",
            requests=requests,
            spend=total(completions),
        )


def _groups(calls: Sequence[Call], size: int) -> Iterator[Sequence[Call]]:
    for start in range(0, len(calls), size):
        yield calls[start : start + size]


def _labelled(at: Execution, row: Row) -> Row:
    again = row.finished.ok and at.is_repeated(row.finished.key)
    return Row(finished=row.finished, cached=row.cached or again)


def _answer(row: Row) -> JsonObject:
    return {"value": row.finished.value, "probability": row.finished.probability, "cached": row.cached}


def _result(row: Row) -> JsonObject:
    if row.finished.ok:
        return {"ok": True, **_answer(row)}
    return {"ok": False, "error": row.finished.error, "error_class": row.finished.error_class}
