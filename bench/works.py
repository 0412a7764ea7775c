"""What the root model has each RLM do, in that RLM's own dialect, and when every request came. One script for all of them."""

import json
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from bench.measure import median
from tests.scripted_model import Answer, JsonObject, Reply, echo_schema, schema_of

SUBCALL_SECONDS = 0.02
#: Another one each turn: a job that repeats itself is ended early.
_TRIVIAL = "x = {turn}\nprint(x)"
_ASK = {
    "rlms": "llm_query('p%d' % i)",
    "dspy-deno": "llm_query('p%d' % i)",
    "predict-rlm": "await predict('q: str -> answer: str', q='p%d' % i)",
    "ours": "predict('q: str -> answer: str', q='p%d' % i)",
}
_BATCH = {
    "rlms": "r = llm_query_batched(['p%d' % i for i in range({n})])",
    "dspy-deno": "r = llm_query_batched(['p%d' % i for i in range({n})])",
    "predict-rlm": "import asyncio\nr = await asyncio.gather("
    "*[predict('q: str -> answer: str', q='p%d' % i) for i in range({n})])",
    "ours": "r = predict_batch('q: str -> answer: str', [{{'q': 'p%d' % i}} for i in range({n})])",
}
_CHILD = {
    "rlms": "rlm_query('p%d' % i)",
    "dspy-deno": "__import__('dspy').RLM('context, query -> answer')(context='c', query='p%d' % i)",
    "ours": "rlm_query('p%d' % i, signature='-> answer: str')",
}
_LOOK = {"ours": "print(sum(1 for _ in evidence.search('needle')))"}


@dataclass(frozen=True, kw_only=True)
class Work:
    """One job: its name goes into the model's, so that the script knows what to answer."""

    who: str
    kind: str
    count: int
    number: int = 0
    context: str = ""

    @property
    def root(self) -> str:
        return f"{self.who}.{self.kind}.{self.count}.{self.number}"

    @property
    def sub(self) -> str:
        return f"{self.who}.subcall.{self.count}.{self.number}"

    @property
    def iterations(self) -> int:
        return self.count if self.kind in ("cells", "input") else 2

    def as_job(self) -> JsonObject:
        """What a process that runs jobs is told of it."""
        if self.kind == "children":
            # The children's turns are roots as well, and they count against the same iterations.
            return {"root": self.root, "iterations": self.count + 2, "depth": 2}
        job = {"root": self.root, "iterations": self.iterations, "context": self.context}
        return job if self.kind in ("cells", "input") else {**job, "sub": self.sub}

    def cell(self, turn: int) -> str:
        """The code of a turn; empty means: submit."""
        if turn >= self.iterations - 1:
            return ""
        asked = f"for i in range({self.count})]\nprint(len(r))"
        match self.kind:
            case "sequential":
                return f"r = [{_ASK[self.who]} {asked}"
            case "children":
                return f"r = [{_CHILD[self.who]} {asked}"
            case "batch":
                return f"{_BATCH[self.who].format(n=self.count)}\nprint(len(r))"
            case "input" if turn == 0:
                return _LOOK.get(self.who, "print(context.count('needle'))")
            case _:
                return _TRIVIAL.format(turn=turn)


def can_recurse(who: str) -> bool:
    return who in _CHILD


@dataclass
class Script:
    """Answers roots at once and subcalls after their latency; notes when each request came."""

    roots: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    subcalls: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def __call__(self, request: JsonObject, _number: int) -> Reply:
        who, kind, count, number = request["model"].split(".")
        if kind == "subcall":
            self.subcalls[request["model"]] += 1
            return Answer(_subcall(who, request), latency_seconds=SUBCALL_SECONDS)
        arrived = self.roots[request["model"]]
        arrived.append(time.monotonic())
        work = Work(who=who, kind=kind, count=int(count), number=int(number))
        return _said(who, work.cell(len(arrived) - 1))


def _subcall(who: str, request: JsonObject) -> str | JsonObject:
    if who == "predict-rlm" and schema_of(request) is None:
        return {"answer": "ok"}
    said = echo_schema(request, 0)
    assert isinstance(said, str | dict)
    return said


def _said(who: str, code: str) -> str:
    if who == "rlms":
        code = code or 'answer["content"] = "done"\nanswer["ready"] = True'
        return f"Next.\n```repl\n{code}\n```"
    code = code or 'SUBMIT(answer="done")'
    block = f"```python\n{code}\n```"
    match who:
        case "dspy-deno":
            return f"[[ ## reasoning ## ]]\nNext.\n\n[[ ## code ## ]]\n{block}\n\n[[ ## completed ## ]]"
        case "predict-rlm":
            return json.dumps({"plan": "Next.", "reasoning": "Next.", "code": block})
        case _:
            return f"Next.\n\n{block}"


@dataclass(frozen=True)
class Taken:
    """Seconds of one job, by the requests that the model saw of it."""

    #: From the call until the first cell was executed.
    start: float
    #: A trivial cell, from turn to turn.
    iteration: float
    #: From the first turn to the last: the cell of the work, where there is one.
    block: float
    whole: float


def taken(arrived: list[float], said: Mapping[str, float]) -> Taken:
    gaps = [later - earlier for earlier, later in pairwise(arrived[1:])]
    return Taken(
        start=arrived[1] - said["began"],
        iteration=median(gaps) if gaps else 0.0,
        block=arrived[-1] - arrived[0],
        whole=said["ended"] - said["began"],
    )
