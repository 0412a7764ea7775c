"""Children: sandboxes of their own, budgets carved from their parent's, one limit and one end for the whole tree."""

import asyncio
import re

import pytest

from rlm_worker.config import WorkerSettings
from rlm_worker.contracts import Budget
from rlm_worker.replay import verify_replay
from tests.builders import a_spec
from tests.engine import QUICK, Ran, attempt, run_job, start
from tests.integration.worker.test_model_errors import sums_are_exact
from tests.integration.worker.test_stop_and_resume import children_of_this_process, kinds, wait_for
from tests.memory_gateway import MemoryGateway
from tests.scripted_model import ScriptedModel, schema_of

ROOM = Budget(max_iterations=200, max_subcalls=500)
EIGHT = """
results = rlm_query_batched([f"child {i}" for i in range(8)], signature="-> n: int")
SUBMIT(answer=str(sum(r.n for r in results if r.ok)) + " " + str([r.error for r in results if not r.ok]))
"""


def tree(*, child: str, root: str = EIGHT, label: str = "x"):
    """A script: the root's one cell, and one cell for every child, in which N is the child's number."""

    def script(request, n):
        if schema_of(request) is not None:
            return {"label": label}
        task = re.search(r"Question:\n(.*)", request["messages"][1]["content"]).group(1)
        number = re.search(r"child (\d+)", task)
        code = root if number is None else child.replace("N", number.group(1))
        return f"```python\n{code}\n```"

    return script


def test_eight_children_at_once_each_have_a_repl_a_sandbox_and_a_record_of_their_own():
    child = "mine = N\npredict('n: int -> label: Literal[\"x\"]', n=mine)\nSUBMIT(n=mine)"
    with ScriptedModel(tree(child=child)) as model:
        ran = run_job(a_spec(model=model.url, budget=ROOM))

    assert ran.output == {"answer": "28 []"}
    nodes = {event.child_id for event in ran.of("child_started")}
    assert len(nodes) == 8
    assert {event.node for event in ran.of("sandbox_opened")} == nodes | {""}
    for node in nodes:
        mine = [event.kind for event in ran.events if event.node == node]
        assert [mine.count(kind) for kind in ("cell_finished", "subcall_finished", "submit_accepted")] == [
            1,
            1,
            1,
        ]
    assert ran.result.usage.subcalls == 8
    assert ran.result.usage.depth == 1
    assert sums_are_exact(ran)
    assert asyncio.run(verify_replay(ran.gateway.spec, ran.gateway.records, settings=QUICK)).verified


@pytest.mark.parametrize("order", ["kill", "stop"])
def test_an_order_in_the_middle_of_eight_children_leaves_no_process_and_exact_sums(order):
    run_job(a_spec(playbook="# %%\nSUBMIT(answer='warm')\n"))
    before = children_of_this_process()
    child = "predict('n: int -> label: Literal[\"x\"]', n=N)\nwhile True: pass"
    with ScriptedModel(tree(child=child)) as model:
        gateway = MemoryGateway(a_spec(model=model.url, budget=ROOM))
        running = start(gateway, settings=WorkerSettings(stop_grace_seconds=0.2))
        wait_for(lambda: kinds(gateway).count("subcall_finished") == 8)
        gateway.order(order)
        running.join(30)

    ran = Ran(gateway)
    assert ran.result.status == "stopped"
    assert ran.of("stop_verified")[0].survivors == ()
    wait_for(lambda: children_of_this_process() <= before, seconds=5)
    assert ran.result.usage.subcalls == 8
    assert sums_are_exact(ran)


@pytest.mark.parametrize("after", [1, 3, 6, 8])
def test_a_child_that_is_born_during_the_kill_dies_with_it(after):
    """The kill comes while sandboxes are being opened, each time at another one."""
    run_job(a_spec(playbook="# %%\nSUBMIT(answer='warm')\n"))
    before = children_of_this_process()
    with ScriptedModel(tree(child="while True: pass")) as model:
        gateway = MemoryGateway(a_spec(model=model.url, budget=ROOM))
        running = start(gateway)
        wait_for(lambda: kinds(gateway).count("sandbox_opened") >= after)
        gateway.order("kill")
        running.join(30)

    assert Ran(gateway).result.status == "stopped"
    wait_for(lambda: children_of_this_process() <= before, seconds=5)


def test_a_budget_that_ends_in_the_middle_reaches_every_child():
    child = "for i in range(50):\n    predict('n: int -> label: Literal[\"x\"]', n=1000 * N + i)\nSUBMIT(n=1)"
    with ScriptedModel(tree(child=child), latency_seconds=0.002) as model:
        ran = run_job(a_spec(model=model.url, budget=Budget(max_iterations=200, max_subcalls=60)))

    assert ran.result.usage.subcalls == 60
    assert len([event for event in ran.of("budget_exhausted") if event.node]) >= 1
    assert sums_are_exact(ran)


def test_turns_of_children_and_subcalls_share_one_limit():
    child = """
rows = [{"n": 100 * N + i} for i in range(10)]
predict_batch("n: int -> label: Literal['x']", rows)
SUBMIT(n=N)
"""
    with ScriptedModel(tree(child=child), latency_seconds=0.02) as model:
        ran = run_job(a_spec(model=model.url, budget=ROOM), settings=WorkerSettings(subcalls_in_flight=3))
        peak = model.peak_in_flight

    assert ran.output == {"answer": "28 []"}
    assert peak <= 3


def test_only_so_many_children_run_at_once():
    with ScriptedModel(tree(child="import time; time.sleep(0.1)\nSUBMIT(n=N)")) as model:
        ran = run_job(a_spec(model=model.url, budget=ROOM), settings=WorkerSettings(children_at_once=2))

    alive = most = 0
    for event in ran.events:
        alive += (event.kind == "child_started") - (event.kind == "child_finished")
        most = max(most, alive)
    assert ran.output == {"answer": "28 []"}
    assert most == 2


def test_children_of_children_do_not_wait_for_a_place_that_their_parents_have():
    root = "r = rlm_query('child 1', signature='-> n: int')\nSUBMIT(answer=str(r.n))"

    def script(request, n):
        task = re.search(r"Question:\n(.*)", request["messages"][1]["content"]).group(1)
        code = {
            "child 1": "SUBMIT(n=rlm_query('child 2', signature='-> n: int').n + 1)",
            "child 2": "SUBMIT(n=1)",
        }.get(task, root)
        return f"```python\n{code}\n```"

    with ScriptedModel(script) as model:
        settings = WorkerSettings(children_at_once=1, subcalls_in_flight=1)
        ran = run_job(a_spec(model=model.url, budget=Budget(max_depth=2)), settings=settings)

    assert ran.output == {"answer": "2"}
    assert ran.result.usage.depth == 2


class TestCarving:
    def carved(self, asked: str, **budget) -> Ran:
        root = f"""
try:
    rlm_query("child 1", signature="-> n: int", budget={asked})
except Exception as error:
    SUBMIT(answer=type(error).__name__ + ": " + str(error))
SUBMIT(answer="fine")
"""
        with ScriptedModel(tree(child="SUBMIT(n=N)", root=root)) as model:
            return run_job(a_spec(model=model.url, budget=Budget(**{"max_iterations": 20, **budget})))

    @pytest.mark.parametrize(
        ("asked", "field", "value"),
        [
            ("{'iterations': 3}", "max_iterations", 3),
            ("{'iterations': 500}", "max_iterations", 19),
            ("{'subcalls': 2}", "max_subcalls", 2),
            ("{'subcalls': 9000}", "max_subcalls", 200),
            ("{'tokens': 50_000}", "max_tokens", 50_000),
            ("{'output_tokens': 9_000}", "max_output_tokens", 9_000),
            ("{'seconds': 5}", "max_wall_time_ms", 5_000),
            ("{'usd': 0.5}", "max_cost_usd", "0.5"),
            ("{'host_calls': 4}", "max_host_calls", 4),
            ("{'output_bytes': 999}", "max_output_bytes", 999),
            ("{'cpu_ms': 2_000}", "max_sandbox_cpu_ms", 2_000),
        ],
    )
    def test_a_child_gets_what_it_asked_for_and_never_more_than_is_left(self, asked, field, value):
        ran = self.carved(asked)

        assert ran.output == {"answer": "fine"}
        assert ran.of("child_started")[0].request["budget"][field] == value

    def test_what_the_parent_keeps_for_its_closing_turn_is_not_given_away(self):
        ran = self.carved("{}", max_tokens=100_000, closing_reserve=0.5)

        given = ran.of("child_started")[0].request["budget"]["max_tokens"]
        spent = ran.of("model_answered")[0].spend
        assert given == 50_000 - spent.input_tokens - spent.output_tokens

    @pytest.mark.parametrize(
        "asked", ["{'iterations': 0}", "{'tokens': -5}", "{'seconds': 'long'}", "{'wishes': 3}", "[1]"]
    )
    def test_a_budget_that_makes_no_sense_is_refused_with_what_would(self, asked):
        ran = self.carved(asked)

        assert "a child's budget" in ran.output["answer"]
        assert ran.of("child_started") == []

    def test_a_child_for_which_nothing_is_left_is_refused(self):
        ran = self.carved("{}", max_iterations=1)

        assert "BudgetExceeded" in ran.output["answer"]
        assert "iterations" in ran.output["answer"]
        assert ran.of("child_started") == []

    def test_a_child_that_uses_up_its_own_budget_leaves_the_rest_to_its_parent(self):
        root = """
try:
    rlm_query("child 1", signature="-> n: int", budget={"iterations": 2})
except SubcallError as error:
    SUBMIT(answer=str(error))
"""
        with ScriptedModel(tree(child="x = N", root=root)) as model:
            ran = run_job(a_spec(model=model.url))

        assert ran.result.status == "succeeded"
        assert "iterations" in ran.output["answer"]
        assert ran.result.usage.iterations == 3


def test_a_tree_that_lost_its_worker_goes_on_without_paying_again():
    child = "predict('n: int -> label: Literal[\"x\"]', n=N)\nimport time; time.sleep(0.5)\nSUBMIT(n=N)"
    with ScriptedModel(tree(child=child)) as model:
        gateway = MemoryGateway(a_spec(model=model.url, budget=ROOM))
        running = start(gateway)
        wait_for(lambda: kinds(gateway).count("subcall_finished") == 8)
        gateway.expire()
        running.join(20)
        before = model.calls
        attempt(gateway)
        asked = model.calls - before

    ran = Ran(gateway)
    assert ran.output == {"answer": "28 []"}
    assert asked == 0
    assert len(ran.of("child_started")) == 8
    assert sums_are_exact(ran)
