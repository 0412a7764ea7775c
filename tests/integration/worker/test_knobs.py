"""Every knob does something: each has two settings under which the same job ends differently.

A knob that is unplugged gives the same outcome twice and fails here; a new knob without a case fails too.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from rlm_worker import actor
from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import Budget
from rlm_worker.contracts.job import ArtifactPolicy, NetworkPolicy, SandboxPolicy
from rlm_worker.heartbeat import Heartbeat
from rlm_worker.models.settings import ModelSettings, PricePerMillion
from tests.builders import a_spec
from tests.engine import Ran, attempt, run_job, start
from tests.integration.worker.test_requests import a_site
from tests.integration.worker.test_stop_and_resume import kinds, wait_for
from tests.memory_gateway import MemoryGateway
from tests.scripted_model import Fault, Hang, ScriptedModel, cells, in_turn, schema_of

HAND = ModelSettings(price=PricePerMillion(input_usd=Decimal(1000), output_usd=Decimal(1000)))
ASK_MANY = "for i in range(20):\n    predict('n: int -> label: Literal[\"x\"]', n=i)\n"
DONE = "SUBMIT(answer='done')\n"


@dataclass(frozen=True)
class Case:
    """The same job under two settings of one knob, and what is seen of each."""

    run: Callable[[Any, Path], Any]
    one: Any
    seen_with_one: Any
    other: Any
    seen_with_other: Any


def limit_of(field: str, code: str, tight: Any, loose: Any, limit: str) -> Case:
    """A limit of the budget: the tight one ends the job by its name, under the loose one it succeeds."""

    def run(value: Any, _: Path) -> str | None:
        with ScriptedModel() as model:
            spec = a_spec(
                playbook=f"# %%\n{code}\n# %%\n{DONE}", model=model.url, budget=Budget(**{field: value})
            )
            ran = run_job(spec, settings=WorkerSettings(models=HAND))
        assert ran.result.limit is not None or ran.result.status == "succeeded", ran.result.message
        return ran.result.limit

    return Case(run, tight, limit, loose, None)


def in_a_cell(**given: Any) -> Callable[..., Callable[[Any, Path], Any]]:
    """A policy's knob, seen from a cell: what the code's `seen` says, or how the job failed."""
    policy, kind, field, code = given["policy"], given["kind"], given["field"], given["code"]

    def run(value: Any, tmp_path: Path) -> Any:
        book = f"# %%\ntry:\n{_indented(code)}\nexcept BaseException as error:\n    seen = type(error).__name__\nSUBMIT(answer=str(seen))\n"
        settings = {**given.get("also", {}), field: value}
        ran = run_job(a_spec(playbook=book, **{policy: kind(**settings)}), artifacts=tmp_path / "kept")
        return ran.output["answer"] if ran.result.structured_output else ran.result.failure_class

    return run


def _indented(code: str) -> str:
    return "\n".join(f"    {line}" for line in code.splitlines())


def sandbox(field: str, code: str) -> Callable[[Any, Path], Any]:
    return in_a_cell(policy="sandbox_policy", kind=SandboxPolicy, field=field, code=code)


def artifacts(field: str) -> Callable[[Any, Path], int]:
    make = "for i in range(5):\n    (workspace / f'{i}.txt').write_text('x' * 100)\n"

    def run(value: Any, tmp_path: Path) -> int:
        policy = ArtifactPolicy(**{"collect": ("*.txt",), field: value})
        spec = a_spec(playbook=f"# %%\n{make}{DONE}", artifact_policy=policy)
        return len(run_job(spec, artifacts=tmp_path / "kept").result.artifact_refs)

    return run


def worker(script: Callable[..., Any], see: Callable[[Ran, ScriptedModel], Any], **fields: Any):
    """A knob of the worker: a model drives the job, and something is seen of the job or of the model."""

    def of(field: str) -> Callable[[Any, Path], Any]:
        def run(value: Any, _: Path) -> Any:
            settings = WorkerSettings(**{"retry_seconds": 0.01, field: value})
            with ScriptedModel(script(), latency_seconds=fields.get("latency", 0.0)) as model:
                ran = run_job(
                    a_spec(model=model.url, budget=fields.get("budget", Budget())), settings=settings
                )
                return see(ran, model)

        return run

    return of


SAME = [f"x{n} = {n}\nprint('same')" for n in range(20)]
ASK_UNTIL_REFUSED = """
for n in range(60):
    try:
        predict("t -> label: Literal['x', 'y']", t={text})
    except SubcallError as error:
        if "not asked" in str(error):
            break
SUBMIT(answer='x')
"""
SIMILAR = ASK_UNTIL_REFUSED.format(text="'why' + '!' * n")
VARIED = ASK_UNTIL_REFUSED.format(text="f'question {n} of {n * n}'")
LONG = [*(f"seen = {n}\nprint('x' * 3000 + '{n:03}')" for n in range(1, 30)), "SUBMIT(answer='x')"]


def iterations(ran: Ran, _: ScriptedModel) -> int:
    return ran.result.usage.iterations


def subcalls_asked(ran: Ran, model: ScriptedModel) -> int:
    return len([request for request in model.requests if "response_format" in request])


def refusing(_request: Any, _number: int) -> Fault:
    return Fault(400, "no")


def max_rollovers(value: Any, _: Path) -> int:
    with ScriptedModel(cells(*LONG)) as model:
        settings = WorkerSettings(rollover_tokens=8_000, max_rollovers=value)
        spec = a_spec(model=model.url, budget=Budget(max_iterations=40))
        return len(run_job(spec, settings=settings).of("rolled_over"))


def network(value: Any, _: Path) -> str:
    with a_site() as (_server, address):
        allow = (address,) if value == "the site" else value
        code = f"try:\n    seen = fetch('http://{address}/').status\nexcept NetworkRefused:\n    seen = 'refused'\n"
        ran = run_job(
            a_spec(
                playbook=f"# %%\n{code}SUBMIT(answer=str(seen))\n", network_policy=NetworkPolicy(allow=allow)
            )
        )
    return ran.output["answer"]


def depth(value: int, _: Path) -> str | None:
    script = cells("rlm_query('go deeper', signature='-> answer: str')", "SUBMIT(answer='x')")
    with ScriptedModel(script) as model:
        return run_job(a_spec(model=model.url, budget=Budget(max_depth=value))).result.limit


def seconds_shown(settings: WorkerSettings, budget: Budget) -> bool:
    """Whether most of the time is there to work in."""
    with ScriptedModel(cells("SUBMIT(answer=str(budget()['seconds']))")) as model:
        ran = run_job(a_spec(model=model.url, budget=budget), settings=settings)
    return float(ran.output["answer"]) > budget.max_wall_time_ms / 1000 * 0.7


def closing_reserve(value: float, _: Path) -> tuple[bool, bool]:
    """Whether most of the time is there to work in, and most of the tokens."""
    budget = Budget(max_wall_time_ms=1_000_000, max_output_tokens=1_200, closing_reserve=value)
    settings = WorkerSettings(turn_output_tokens=200)
    spend = "n = 0\ntry:\n    while n < 199:\n        predict('n: int -> label: Literal[\"x\"]', n=n)\n        n += 1\n"
    spend += "except BudgetExceeded:\n    pass\nSUBMIT(answer=str(n))"
    with ScriptedModel(cells(spend)) as model:
        ran = run_job(a_spec(model=model.url, budget=budget), settings=settings)
    return seconds_shown(settings, budget), ran.output["answer"] == "199"


def closing_seconds(value: float, _: Path) -> bool:
    budget = Budget(max_wall_time_ms=1_000_000, closing_reserve=0.01)
    return seconds_shown(WorkerSettings(closing_seconds=value), budget)


def guest_paths(value: str, tmp_path: Path) -> str:
    folder = tmp_path / "libraries"
    folder.mkdir(exist_ok=True)
    (folder / "of_mine.py").write_text("NAME = 'mine'\n")
    run = sandbox("guest_paths", "import of_mine\nseen = of_mine.NAME")
    return run((str(folder),) if value == "given" else (), tmp_path)


def backend(value: str, tmp_path: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", "unix:///no/such/engine.sock")
        return sandbox("backend", "seen = 'ran'")(value, tmp_path)


def runtime(value: str, tmp_path: Path) -> str:
    """Only containers have another runtime: asked for elsewhere it is refused, not left out."""
    return sandbox("runtime", "seen = 'ran'")(value, tmp_path)


def prices(value: ModelSettings, _: Path) -> bool:
    with ScriptedModel(cells("SUBMIT(answer='x')")) as model:
        return (
            run_job(a_spec(model=model.url), settings=WorkerSettings(models=value)).result.usage.cost_usd > 0
        )


def park_after(value: float, _: Path) -> int:
    limited = Fault(429, {"error": {"message": "slow"}}, {"Retry-After": "0.3"})
    with ScriptedModel(
        lambda request, n: limited if n == 0 else "```python\nSUBMIT(answer='x')\n```"
    ) as model:
        gateway = MemoryGateway(a_spec(model=model.url))
        attempt(gateway, settings=WorkerSettings(park_after_seconds=value))
    return len(gateway.parks)


def parks_in_a_row(value: int, _: Path) -> int:
    limited = Fault(429, {"error": {"message": "slow"}}, {"Retry-After": "3600"})
    with ScriptedModel(lambda request, n: limited) as model:
        gateway = MemoryGateway(a_spec(model=model.url))
        for _attempt in range(4):
            attempt(gateway, settings=WorkerSettings(parks_in_a_row=value))
            gateway.unpark()
    return len(gateway.parks)


def stop_grace(value: float, _: Path) -> str:
    with ScriptedModel(cells("x = 1", "while True: pass", "SUBMIT(answer='last')")) as model:
        gateway = MemoryGateway(a_spec(model=model.url))
        running = start(gateway, settings=WorkerSettings(stop_grace_seconds=value))
        wait_for(lambda: kinds(gateway).count("cell_proposed") == 2)
        gateway.order("stop")
        running.join(40)
    return Ran(gateway).result.answered_by


def pause_grace(value: float, _: Path) -> bool:
    """Whether a cell of half a second could end before the pause."""
    gateway = MemoryGateway(a_spec(playbook=f"# %%\nimport time; time.sleep(0.5)\n# %%\n{DONE}"))
    running = start(gateway, settings=WorkerSettings(pause_grace_seconds=value))
    wait_for(lambda: "cell_proposed" in kinds(gateway))
    gateway.order("pause")
    running.join(40)
    return "cell_finished" in kinds(gateway)


def lease_margin(value: float, _: Path) -> float:
    trusted = []

    class Seen(Heartbeat):
        def __init__(self, *args: Any, **given: Any) -> None:
            super().__init__(*args, **given)
            trusted.append(round(self._trust(8_000), 1))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(actor, "Heartbeat", Seen)
        run_job(a_spec(playbook=f"# %%\n{DONE}"), settings=WorkerSettings(lease_margin_seconds=value))
    return trusted[0]


def retry_seconds(value: float, _: Path) -> bool:
    """Whether the pause before the second request is a long one."""
    with ScriptedModel(
        lambda request, n: Fault(503, "busy") if n == 0 else "```python\nSUBMIT(answer='x')\n```"
    ) as m:
        ran = run_job(a_spec(model=m.url), settings=WorkerSettings(retry_seconds=value))
    asked, answered = (
        next(r for r in ran.gateway.records if r.kind == k) for k in ("model_asked", "model_answered")
    )
    return answered.at_ms - asked.at_ms >= 1_100


def garbage_once(request: Any, n: int) -> Any:
    if schema_of(request) is None:
        return "```python\nSUBMIT(answer=predict('t -> label: Literal[\"x\"]', t='a').label)\n```"
    return "garbage" if n == 1 else {"label": "x"}


def busy_twice(request: Any, n: int) -> Any:
    return Fault(503, "busy") if n < 2 else "```python\nSUBMIT(answer='x')\n```"


BATCH = "predict_batch('n: int -> label: Literal[\"x\"]', [{'n': i} for i in range(40)])\nSUBMIT(answer='x')"
CHILDREN = (
    "rlm_query_batched([f'child {i}' for i in range(4)], signature='-> answer: str')\nSUBMIT(answer='x')"
)


def family(request: Any, n: int) -> Any:
    is_child = "child" in request["messages"][1]["content"].split("Answer with")[0]
    code = "import time; time.sleep(0.2)\nSUBMIT(answer='x')" if is_child else CHILDREN
    return f"```python\n{code}\n```"


def children_alive(ran: Ran, _: ScriptedModel) -> int:
    alive = most = 0
    for event in ran.events:
        alive += (event.kind == "child_started") - (event.kind == "child_finished")
        most = max(most, alive)
    return most


def shown(ran: Ran, model: ScriptedModel) -> bool:
    return len(model.requests[-1]["messages"][-1]["content"]) > 4_000


def in_words(ran: Ran, _: ScriptedModel) -> str:
    return (
        "0.4 s"
        if "within 0.4 s" in ran.result.message
        else "0.2 s"
        if "within 0.2 s" in ran.result.message
        else ""
    )


BURN = "import time\nend = time.process_time() + 1.6\nwhile time.process_time() < end: pass"
THREADS = """
import threading, time
threads = [threading.Thread(target=time.sleep, args=(0.3,)) for _ in range(30)]
for thread in threads: thread.start()
seen = "started"
"""

CASES: dict[tuple[type, str], Case] = {
    (Budget, "max_iterations"): limit_of("max_iterations", "x = 1\n# %%\ny = 2", 2, 20, "iterations"),
    (Budget, "max_subcalls"): limit_of("max_subcalls", ASK_MANY, 5, 200, "subcalls"),
    (Budget, "max_depth"): Case(depth, 0, "depth", 1, None),
    (Budget, "max_wall_time_ms"): limit_of(
        "max_wall_time_ms", "import time; time.sleep(3)", 1_000, 60_000, "wall_time"
    ),
    (Budget, "max_tokens"): limit_of("max_tokens", ASK_MANY, 1_500, 1_000_000, "tokens"),
    (Budget, "max_input_tokens"): limit_of("max_input_tokens", ASK_MANY, 1_000, 1_000_000, "input_tokens"),
    (Budget, "max_output_tokens"): limit_of("max_output_tokens", ASK_MANY, 120, 1_000_000, "output_tokens"),
    (Budget, "max_cost_usd"): limit_of("max_cost_usd", ASK_MANY, Decimal(1), Decimal(1_000), "cost"),
    (Budget, "max_host_calls"): limit_of(
        "max_host_calls", "for _ in range(9): budget()", 5, 100, "host_calls"
    ),
    (Budget, "max_output_bytes"): limit_of(
        "max_output_bytes", "print('x' * 9_000)", 5_000, 50_000, "output_bytes"
    ),
    (Budget, "max_sandbox_cpu_ms"): limit_of("max_sandbox_cpu_ms", BURN, 1_000, 60_000, "sandbox_cpu"),
    (Budget, "max_sandbox_memory_bytes"): limit_of(
        "max_sandbox_memory_bytes", "x = bytearray(300_000_000)", 150_000_000, 1_000_000_000, "sandbox_memory"
    ),
    (Budget, "closing_reserve"): Case(closing_reserve, 0.5, (False, False), 0.0, (True, True)),
    (SandboxPolicy, "backend"): Case(backend, "docker", "backend_unavailable", "namespaces", "ran"),
    (SandboxPolicy, "runtime"): Case(runtime, "runsc", "invalid_request", "runc", "ran"),
    (SandboxPolicy, "language"): Case(
        sandbox("language", "seen = type('s', (), {}).__mro__ and 'ran'"),
        "strict",
        "output_invalid",
        "open",
        "ran",
    ),
    (SandboxPolicy, "cell_seconds"): Case(
        sandbox("cell_seconds", "import time; time.sleep(2); seen = 'slept'"),
        0.5,
        "KeyboardInterrupt",
        60.0,
        "slept",
    ),
    (SandboxPolicy, "memory_bytes"): Case(
        sandbox("memory_bytes", "x = bytearray(300_000_000); seen = 'had'"),
        150_000_000,
        "MemoryError",
        10**9,
        "had",
    ),
    (SandboxPolicy, "processes"): Case(sandbox("processes", THREADS), 8, "RuntimeError", 64, "started"),
    (SandboxPolicy, "workspace_bytes"): Case(
        sandbox("workspace_bytes", "(workspace / 'big').write_bytes(bytes(9_000_000)); seen = 'kept'"),
        1_000_000,
        "OSError",
        64_000_000,
        "kept",
    ),
    (SandboxPolicy, "required_layers"): Case(
        sandbox("required_layers", "seen = 'ran'"), ("no such layer",), "backend_unavailable", None, "ran"
    ),
    (SandboxPolicy, "guest_paths"): Case(guest_paths, "given", "mine", "not given", "ModuleNotFoundError"),
    (NetworkPolicy, "allow"): Case(network, "the site", "200", (), "refused"),
    (ArtifactPolicy, "collect"): Case(artifacts("collect"), ("*.txt",), 5, ("0.*",), 1),
    (ArtifactPolicy, "max_files"): Case(artifacts("max_files"), 2, 2, 100, 5),
    (ArtifactPolicy, "max_bytes"): Case(artifacts("max_bytes"), 350, 3, 10_000, 5),
    (WorkerSettings, "models"): Case(prices, HAND, True, ModelSettings(), False),
    (WorkerSettings, "subcalls_in_flight"): Case(
        worker(lambda: cells(BATCH), lambda ran, model: model.peak_in_flight > 3, latency=0.02)(
            "subcalls_in_flight"
        ),
        3,
        False,
        40,
        True,
    ),
    (WorkerSettings, "children_at_once"): Case(
        worker(lambda: family, children_alive)("children_at_once"), 1, 1, 4, 4
    ),
    (WorkerSettings, "repairs"): Case(
        worker(lambda: garbage_once, lambda ran, model: len(ran.of("subcall_finished")[0].error) == 0)(
            "repairs"
        ),
        1,
        True,
        0,
        False,
    ),
    (WorkerSettings, "retries"): Case(
        worker(lambda: busy_twice, lambda ran, model: ran.result.status)("retries"),
        3,
        "succeeded",
        1,
        "failed",
    ),
    (WorkerSettings, "retry_seconds"): Case(retry_seconds, 1.6, True, 0.01, False),
    (WorkerSettings, "park_after_seconds"): Case(park_after, 0.1, 1, 20.0, 0),
    (WorkerSettings, "parks_in_a_row"): Case(parks_in_a_row, 1, 1, 3, 3),
    (WorkerSettings, "model_timeout_seconds"): Case(
        worker(lambda: lambda request, n: Hang(), in_words)("model_timeout_seconds"),
        0.2,
        "0.2 s",
        0.4,
        "0.4 s",
    ),
    (WorkerSettings, "turn_output_tokens"): Case(
        worker(lambda: cells("SUBMIT(answer='x')"), lambda ran, model: model.requests[0]["max_tokens"])(
            "turn_output_tokens"
        ),
        100,
        100,
        900,
        900,
    ),
    (WorkerSettings, "turn_temperature"): Case(
        worker(lambda: cells("SUBMIT(answer='x')"), lambda ran, model: model.requests[0].get("temperature"))(
            "turn_temperature"
        ),
        0.0,
        0.0,
        0.7,
        0.7,
    ),
    (WorkerSettings, "closing_seconds"): Case(closing_seconds, 400.0, False, 1.0, True),
    (WorkerSettings, "stop_grace_seconds"): Case(stop_grace, 30.0, "submit", 0.0, "nobody"),
    (WorkerSettings, "pause_grace_seconds"): Case(pause_grace, 30.0, True, 0.0, False),
    (WorkerSettings, "observation_chars"): Case(
        worker(lambda: cells("print('x' * 9_000)", "SUBMIT(answer='x')"), shown)("observation_chars"),
        500,
        False,
        8_000,
        True,
    ),
    (WorkerSettings, "repeated_failures"): Case(
        worker(lambda: cells("1/0"), lambda ran, model: model.calls)("repeated_failures"), 2, 2, 4, 4
    ),
    (WorkerSettings, "repeated_observations"): Case(
        worker(lambda: cells(*SAME), iterations)("repeated_observations"), 3, 3, 6, 6
    ),
    (WorkerSettings, "empty_turns"): Case(
        worker(lambda: in_turn("I am thinking about it."), iterations)("empty_turns"), 3, 3, 6, 6
    ),
    (WorkerSettings, "similar_subcalls"): Case(
        worker(lambda: cells(SIMILAR), subcalls_asked)("similar_subcalls"), 5, 5, 10, 10
    ),
    (WorkerSettings, "failing_subcalls"): Case(
        worker(lambda: cells(VARIED, otherwise=refusing), subcalls_asked)("failing_subcalls"), 5, 5, 10, 10
    ),
    (WorkerSettings, "rollover_tokens"): Case(
        worker(lambda: cells(*LONG), lambda ran, model: bool(ran.of("rolled_over")))("rollover_tokens"),
        8_000,
        True,
        1_000_000,
        False,
    ),
    (WorkerSettings, "max_rollovers"): Case(max_rollovers, 1, 1, 2, 2),
    (WorkerSettings, "profile"): Case(
        worker(
            lambda: cells("SUBMIT(answer='x')"),
            lambda ran, model: "at most ten lines" in model.requests[0]["messages"][0]["content"],
        )("profile"),
        "small-local",
        True,
        None,
        False,
    ),
    (WorkerSettings, "lease_margin_seconds"): Case(lease_margin, 0.5, 7.5, 1.5, 6.5),
}


def every_knob() -> set[tuple[type, str]]:
    contracts = (Budget, SandboxPolicy, NetworkPolicy, ArtifactPolicy)
    knobs = {(contract, field) for contract in contracts for field in contract.model_fields}
    return knobs | {(WorkerSettings, field.name) for field in dataclasses.fields(WorkerSettings)}


def test_every_knob_has_a_case():
    assert set(CASES) == every_knob()


@pytest.mark.parametrize("knob", CASES, ids=lambda knob: f"{knob[0].__name__}.{knob[1]}")
def test_the_knob_does_something(knob, tmp_path):
    case = CASES[knob]
    assert case.seen_with_one != case.seen_with_other, "a case that cannot tell the two settings apart"

    assert case.run(case.one, tmp_path) == case.seen_with_one
    assert case.run(case.other, tmp_path) == case.seen_with_other
