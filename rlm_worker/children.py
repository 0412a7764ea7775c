"""rlm_query(): a child with a REPL and a sandbox of its own, under a budget carved from its parent's."""

from collections.abc import Awaitable, Callable
from decimal import Decimal

from pydantic import JsonValue

from rlm_worker.calls import read_signature
from rlm_worker.contracts import Budget, JobSpec, JsonObject, digest
from rlm_worker.contracts.job import ModelDriver
from rlm_worker.contracts.trace import ChildFinished, ChildStarted
from rlm_worker.crashpoints import crash_here
from rlm_worker.endings import Ending, Exhausted, Submitted, Waits
from rlm_worker.errors import BadCall, BudgetExceeded, MustPark, SubcallFailed
from rlm_worker.execution import Execution
from rlm_worker.meter import SHOWN_AS, Meter
from rlm_worker.redaction import redact
from rlm_worker.workbench import Workbench

#: Runs a child's REPL to its end.
RunChild = Callable[[JobSpec, str, Meter], Awaitable[Ending]]
#: Told of an answer that was served from the record: the answer, its schema, and what the cell asked.
OnRecorded = Callable[[ChildFinished, JsonObject, JsonObject], None]

#: What a cell may limit for its child, by the names that budget() shows.
_FIELDS = {
    "iterations": "max_iterations",
    "subcalls": "max_subcalls",
    "tokens": "max_tokens",
    "input_tokens": "max_input_tokens",
    "output_tokens": "max_output_tokens",
    "usd": "max_cost_usd",
    "host_calls": "max_host_calls",
    "output_bytes": "max_output_bytes",
    "cpu_ms": "max_sandbox_cpu_ms",
    "memory_bytes": "max_sandbox_memory_bytes",
}
_DIMENSIONS = {name: dimension for dimension, name in SHOWN_AS.items()}
#: A child can do without these.
_MAY_BE_NOTHING = {"subcalls", "host_calls"}
_MOST = 1e15


class Children:
    """The rlm_query() of one REPL."""

    def __init__(
        self,
        bench: Workbench,
        spec: JobSpec,
        *,
        meter: Meter,
        run: RunChild,
        on_recorded: OnRecorded = lambda _finished, _schema, _payload: None,
    ) -> None:
        self._bench = bench
        self._spec = spec
        self._meter = meter
        self._run = run
        self._on_recorded = on_recorded

    async def ask(self, at: Execution, payload: JsonObject) -> JsonValue:
        """The child's answer; raises SubcallFailed when it has none."""
        if not isinstance(self._bench.spec.driver, ModelDriver):
            raise SubcallFailed("rlm_query needs a model that can write cells: give the job one with --model")
        task, schema, key = self._read(payload)
        known = at.outcome(key)
        if known is None:
            at.must_be_live("an rlm_query() call")
            known = await self._live(at, key, task, schema, payload)
        else:
            assert isinstance(known, ChildFinished)
            self._on_recorded(known, schema, payload)
        if not known.ok:
            raise SubcallFailed(known.error)
        return {
            "value": known.value,
            "probability": None,
            "cached": False,
            "schema": schema,
            "model": known.child_id,
        }

    def _read(self, payload: JsonObject) -> tuple[str, JsonObject, str]:
        task, inputs = payload.get("task"), payload.get("inputs") or {}
        if not isinstance(task, str) or not task.strip() or not isinstance(inputs, dict):
            raise BadCall("rlm_query(task, signature=…, inputs={…}) needs a task in words and named inputs")
        _, schema, _ = read_signature(payload)
        return task, schema, digest(["rlm_query", task, schema, inputs, payload.get("budget")])

    async def _live(
        self, at: Execution, key: str, task: str, schema: JsonObject, payload: JsonObject
    ) -> ChildFinished:
        self._meter.check_depth(self._spec.depth + 1)
        async with self._bench.child_limiter(self._spec.depth + 1):
            return await self._in_its_turn(at, key, task, schema, payload)

    async def _in_its_turn(
        self, at: Execution, key: str, task: str, schema: JsonObject, payload: JsonObject
    ) -> ChildFinished:
        self._bench.waiting.check()
        begun = at.child(key)
        if begun is None:
            begun = self._begin(at, key, task, schema, budget=self._carve(payload.get("budget") or {}))
            await self._bench.writer.write(begun)
        crash_here("child.after_start")
        spec = self.spec_of(begun, schema, payload)
        ending = await self._run(spec, begun.child_id, self._child_meter(begun, spec.budget))
        if isinstance(ending, Waits):
            raise MustPark(ending.reason, ending.detail, not_before=ending.not_before)
        finished = redact(_finished(begun, ending))
        crash_here("child.before_record")
        await self._bench.writer.write(finished)
        return finished

    def _begin(
        self, at: Execution, key: str, task: str, schema: JsonObject, *, budget: Budget
    ) -> ChildStarted:
        ordinal = self._bench.journal.take_ordinal()
        return ChildStarted(
            node=at.node,
            iteration=at.iteration,
            ordinal=ordinal,
            key=key,
            # One dot for each level of depth.
            child_id=f"{at.node or 'child'}.{ordinal}",
            task=task,
            request={"schema": schema, "budget": budget.model_dump(mode="json")},
        )

    def spec_of(self, begun: ChildStarted, schema: JsonObject, payload: JsonObject) -> JobSpec:
        """What a child is asked, and with what."""
        return self._spec.model_copy(
            update={
                "task": begun.task,
                "depth": self._spec.depth + 1,
                "output_schema": schema,
                "params": {"inputs": payload.get("inputs") or {}},
                "budget": Budget.model_validate(begun.request["budget"]),
                "driver": self._bench.spec.driver,
            }
        )

    def _child_meter(self, begun: ChildStarted, budget: Budget) -> Meter:
        """The child's own count, with what it had used before a crash."""
        meter = Meter(
            budget,
            parent=self._meter,
            has_closing_turn=True,
            closing_seconds=self._bench.settings.closing_seconds,
        )
        for event in self._bench.journal.below(begun.child_id):
            meter.restore(event)
        meter.restore_iterations(len(self._bench.journal.nodes[begun.child_id].iterations))
        return meter

    def _carve(self, asked: JsonValue) -> Budget:
        """What the child asked for, and never more than its parent has left beside its own closing turn."""
        wanted = _read_budget(asked)
        left = self._meter.spendable()
        carved = self._meter.budget.model_dump()
        for name, field in _FIELDS.items():
            limits = [Decimal(str(value)) for value in (wanted.get(name), left[name]) if value is not None]
            carved[field] = _limit(name, min(limits)) if limits else None
        seconds = min(
            float(str(wanted.get("seconds", self._meter.seconds_left()))), self._meter.seconds_left()
        )
        carved["max_wall_time_ms"] = max(1, int(seconds * 1000))
        return Budget.model_validate(carved)


def _read_budget(asked: JsonValue) -> dict[str, Decimal]:
    """The limits a cell named, by their name in budget(); BadCall says what would be right."""
    names = {*_FIELDS, "seconds"}
    if not isinstance(asked, dict) or not set(asked) <= names:
        raise BadCall(f"a child's budget may set {', '.join(sorted(names))}, got {asked!r}")
    wanted = {}
    for name, value in asked.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < float(str(value)) < _MOST:
            raise BadCall(f"a child's budget {name} must be a number above 0, got {value!r}")
        wanted[name] = Decimal(str(value))
    return wanted


def _limit(name: str, limit: Decimal) -> int | Decimal:
    """A child that could not do anything is refused at once."""
    is_enough = limit > 0 if name == "usd" else int(limit) >= (0 if name in _MAY_BE_NOTHING else 1)
    if not is_enough:
        raise BudgetExceeded(_DIMENSIONS[name], limit="what the parent has left", spent=str(limit))
    return limit if name == "usd" else int(limit)


def _finished(begun: ChildStarted, ending: Ending) -> ChildFinished:
    fields = ending.fields if isinstance(ending, Submitted | Exhausted) else None
    return ChildFinished(
        node=begun.node,
        iteration=begun.iteration,
        ordinal=begun.ordinal,
        key=begun.key,
        child_id=begun.child_id,
        ok=fields is not None,
        value=fields,
        error=""
        if fields is not None
        else f"the child ended without an answer: {getattr(ending, 'message', '')}",
    )
