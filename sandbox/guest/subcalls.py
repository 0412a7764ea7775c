"""predict, predict_batch, rlm_query and their aliases: typed questions to the host. Decides nothing about budgets.

In plain code each call waits for its answer. In `async` code it returns at once something to await, so that
`asyncio.gather(predict(...), predict(...))` runs the calls side by side.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from sandbox.guest.calls import BudgetExceeded, SubcallError
from sandbox.guest.inputs import compact, plain
from sandbox.guest.results import Deferred, Result, in_async_code
from sandbox.guest.signatures import Question, ask

T = TypeVar("T")
Call = Callable[[str, dict[str, Any]], Any]
AsyncCall = Callable[[str, dict[str, Any]], Awaitable[Any]]

#: Half of what one frame may hold, so that the rest of the payload always fits.
_FRAME_ROWS_BYTES = 4 << 20
_PROMPT = "prompt -> text: str"


class Subcalls:
    """The typed calls of one session."""

    def __init__(self, call: Call, call_async: AsyncCall, names: Mapping[str, Any]) -> None:
        self._call = call
        self._call_async = call_async
        self._names = names

    def predict(
        self, signature: Any, /, *, instructions: str = "", model: str | None = None, **inputs: Any
    ) -> Result:
        """Ask a model for typed fields: `predict("line -> severity: Literal['low','high']", line=text).severity`.

        The signature is a string "input, … -> field: type, …" (str, int, float, bool, date, datetime, Literal[...],
        list[T], dict[str, T], Optional[T]), or a dataclass, TypedDict or pydantic model, or a JSON Schema. The answer is
        checked against it. `.probability` tells how sure the model was, where it can. Raises SubcallError when no fitting
        answer came, BudgetExceeded when the budget is spent. In `async` code: `await predict(...)`, or gather several.
        """
        question, payload = self._one(signature, instructions, model, inputs)
        return self._run("predict", payload, question.only)

    async def apredict(
        self, signature: Any, /, *, instructions: str = "", model: str | None = None, **inputs: Any
    ) -> Result:
        """`predict` as a plain coroutine, for asyncio.create_task and task groups."""
        question, payload = self._one(signature, instructions, model, inputs)
        return question.only(await self._call_async("predict", payload))

    def _one(
        self, signature: Any, instructions: str, model: str | None, inputs: dict[str, Any]
    ) -> tuple[Question, dict[str, Any]]:
        question = ask(signature, self._names)
        row = question.row(inputs)
        return question, {**question.fields(), "inputs": row, "instructions": instructions, "model": model}

    def predict_batch(
        self, signature: Any, rows: Iterable[Any], /, *, instructions: str = "", model: str | None = None
    ) -> list[Result]:
        """Ask the same question about many rows at once; results come in the order of the rows.

        A row is a dict of inputs, or the bare value when the signature has one input. A failed row has `.ok` False and
        `.error`. A batch larger than the budget is refused with BudgetExceeded before anything is spent.
        """
        question = ask(signature, self._names)
        inputs = [question.row(row) for row in rows]
        common = {**question.fields(), "instructions": instructions, "model": model}
        payloads = list(_frames(inputs, common)) if inputs else []
        return self._run_all("predict_batch", payloads, lambda answer: _batch(question, answer))

    def rlm_query(
        self,
        task: str,
        /,
        *,
        signature: Any = "-> answer: str",
        inputs: Mapping[str, Any] | None = None,
        budget: Mapping[str, Any] | None = None,
    ) -> Result:
        """Give a whole task to a child with its own REPL over the same evidence, paid from this job's budget.

        `rlm_query("Which module opens sockets?", signature="-> module: str", budget={"subcalls": 10}).module`
        """
        question, payload = self._child(task, signature, inputs, budget)
        return self._run("rlm_query", payload, question.only)

    def rlm_query_batched(
        self,
        tasks: Iterable[str],
        /,
        *,
        signature: Any = "-> answer: str",
        inputs: Mapping[str, Any] | None = None,
        budget: Mapping[str, Any] | None = None,
    ) -> list[Result]:
        """Give several tasks to children side by side; a failed one has `.ok` False and `.error`."""
        children = [self._child(task, signature, inputs, budget) for task in tasks]

        async def one(question: Question, payload: dict[str, Any]) -> Result:
            try:
                return question.result(await self._call_async("rlm_query", payload))
            except (SubcallError, BudgetExceeded) as error:
                return Result(None, error=f"{type(error).__name__}: {error}")

        async def every() -> list[Result]:
            return list(await asyncio.gather(*(one(*child) for child in children)))

        if in_async_code():
            return cast("list[Result]", Deferred(now=_needs_await, later=every))
        return asyncio.run(every())

    def _child(
        self, task: str, signature: Any, inputs: Mapping[str, Any] | None, budget: Mapping[str, Any] | None
    ) -> tuple[Question, dict[str, Any]]:
        question = ask(signature, self._names)
        return question, {
            "task": str(task),
            **question.fields(),
            "inputs": plain(inputs or {}),
            "budget": None if budget is None else plain(budget),
        }

    def llm_query(self, prompt: str, *, model: str | None = None) -> str:
        """Ask a model for text: the short form of predict("prompt -> text")."""
        question, payload = self._one(_PROMPT, "", model, {"prompt": prompt})
        return self._run("predict", payload, lambda answer: cast("str", question.result(answer)["text"]))

    def llm_query_batched(self, prompts: Iterable[str], *, model: str | None = None) -> list[str]:
        """Ask a model for one text per prompt; a failed prompt raises SubcallError."""
        question = ask(_PROMPT, self._names)
        rows = [question.row({"prompt": prompt}) for prompt in prompts]
        common = {**question.fields(), "instructions": "", "model": model}
        texts = self._run_all(
            "predict_batch",
            list(_frames(rows, common)) if rows else [],
            lambda answer: [result["text"] for result in _batch(question, answer)],
        )
        return cast("list[str]", texts)

    def _run(self, name: str, payload: dict[str, Any], finish: Callable[[Any], T]) -> T:
        if not in_async_code():
            return finish(self._call(name, payload))

        async def later() -> T:
            return finish(await self._call_async(name, payload))

        return cast("T", Deferred(now=lambda: finish(self._call(name, payload)), later=later))

    def _run_all(
        self, name: str, payloads: list[dict[str, Any]], finish: Callable[[Any], list[T]]
    ) -> list[T]:
        def now() -> list[T]:
            return [result for payload in payloads for result in finish(self._call(name, payload))]

        async def later() -> list[T]:
            answers = [await self._call_async(name, payload) for payload in payloads]
            return [result for answer in answers for result in finish(answer)]

        return cast("list[T]", Deferred(now=now, later=later)) if in_async_code() else now()


def _needs_await() -> list[Result]:
    raise RuntimeError("in async code write `await rlm_query_batched(...)`")


def _frames(rows: Sequence[dict[str, Any]], common: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Payloads of bounded size. The first of several says how many different rows there are, so that the host can refuse them all."""
    written = [compact(row) for row in rows]
    groups: list[list[dict[str, Any]]] = [[]]
    size = 0
    for row, text in zip(rows, written, strict=True):
        if groups[-1] and size + len(text) > _FRAME_ROWS_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(row)
        size += len(text)
    total = {"total_rows": len(set(written))} if len(groups) > 1 else {}
    for number, group in enumerate(groups):
        yield {**common, "rows": group, **(total if number == 0 else {})}


def _batch(question: Question, answer: Mapping[str, Any]) -> list[Result]:
    schema, model = answer.get("schema"), answer.get("model") or ""
    return [question.result(row, schema=schema, model=model) for row in answer["results"]]
