"""A replay repeats the whole tree: each child in a sandbox of its own, with its own record, found again by its id."""

import asyncio
import re
from pathlib import Path

import pytest

from controlplane.adapters.trace_files import TraceFile, TraceHeader, verified, write_trace
from controlplane.worker_parts import replay
from rlm_worker.contracts import Budget, TraceRecord
from rlm_worker.contracts.trace import GENESIS, link_hash
from rlm_worker.replay import ReplayReport, verify_replay
from tests.builders import a_spec
from tests.engine import QUICK, Ran, run_job
from tests.scripted_model import ScriptedModel, schema_of

ROOT = "r = rlm_query('middle', signature='-> n: int', inputs={'start': 40})\nprint(r.n)\nSUBMIT(answer=str(r.n))"
MIDDLE = "print('middle')\nSUBMIT(n=rlm_query('leaf', signature='-> n: int', inputs={'from': params['inputs']['start']}).n + 1)"
LEAF = """label = predict("n: int -> label: Literal['x']", n=params["inputs"]["from"]).label
print('leaf', label)
SUBMIT(n=params["inputs"]["from"] + 1)"""


def ran_tree(*, root: str = ROOT, middle: str = MIDDLE, leaf: str = LEAF, **budget: int) -> Ran:
    """A job whose child has a child."""
    cells = {"middle": middle, "leaf": leaf}

    def script(request, n):
        if schema_of(request) is not None:
            return {"label": "x"}
        task = re.search(r"Question:\n(.*)", request["messages"][1]["content"]).group(1)
        return f"```python\n{cells.get(task, root)}\n```"

    with ScriptedModel(script) as model:
        return run_job(
            a_spec(model=model.url, budget=Budget(**{"max_depth": 2, "max_iterations": 20, **budget}))
        )


def report_of(ran: Ran, records: list[TraceRecord] | None = None) -> ReplayReport:
    return asyncio.run(verify_replay(ran.gateway.spec, records or ran.gateway.records, settings=QUICK))


def retold(records: list[TraceRecord], change) -> list[TraceRecord]:
    """The trace of a forger who knows how links are hashed: one event is another, and the chain is whole."""
    told, head = [], GENESIS
    for record in records:
        event = change(dict(record.event))
        mark = link_hash(seq=record.seq, at_ms=record.at_ms, event=event, prev=head)
        told.append(record.model_copy(update={"event": event, "prev": head, "hash": mark}))
        head = mark
    return told


@pytest.fixture(scope="module")
def honest() -> Ran:
    return ran_tree()


def test_children_and_their_children_are_repeated_without_a_model(honest):
    report = report_of(honest)

    assert honest.output == {"answer": "42"}
    assert report.verified, report.divergence
    assert (report.cells, report.same, report.children) == (3, 3, 2)
    assert report.children_cut_off == ()


def test_a_child_that_printed_something_else_is_found_by_its_id(honest):
    leaf = next(event.child_id for event in honest.of("child_started") if event.task == "leaf")

    def change(event):
        if event["kind"] == "cell_finished" and event["node"] == leaf:
            return {**event, "stdout": "leaf y\n", "digest": "0" * 64}
        return event

    report = report_of(honest, retold(honest.gateway.records, change))

    assert not report.verified
    assert report.result_same
    assert (report.divergence.node, report.divergence.iteration, report.divergence.what) == (
        leaf,
        1,
        "stdout",
    )
    assert str(report.divergence).startswith(f"{leaf}, iteration 1, stdout: ")


def test_a_parent_that_was_told_something_else_than_its_child_submitted_is_found(honest):
    middle = next(event.child_id for event in honest.of("child_started") if event.task == "middle")

    def change(event):
        if event["kind"] == "child_finished" and event["child_id"] == middle:
            return {**event, "value": {"n": 43}}
        if event["kind"] == "cell_finished" and not event["node"]:
            return {**event, "stdout": "43\n"}
        return event

    report = report_of(honest, retold(honest.gateway.records, change))

    assert report.divergence.node == middle
    assert report.divergence.what == "answer to its parent"
    assert report.divergence.expected == '{"n":43}'


def test_a_child_whose_recorded_submit_was_changed_is_found(honest):
    leaf = next(event.child_id for event in honest.of("child_started") if event.task == "leaf")

    def change(event):
        if event["kind"] == "submit_accepted" and event["node"] == leaf:
            return {**event, "fields": {"n": 7}}
        return event

    report = report_of(honest, retold(honest.gateway.records, change))

    assert (report.divergence.node, report.divergence.what) == (leaf, "SUBMIT")
    assert report.divergence.expected == '{"n":7}'


def test_the_first_divergence_is_the_earliest_of_the_trace(honest):
    """The leaf's cell stands before the root's in the trace: it is named, though both differ."""
    leaf = next(event.child_id for event in honest.of("child_started") if event.task == "leaf")

    def change(event):
        if event["kind"] == "cell_finished":
            return {**event, "stdout": "other\n", "digest": "0" * 64}
        return event

    report = report_of(honest, retold(honest.gateway.records, change))

    assert report.same == 0
    assert report.divergence.node == leaf


def test_equal_children_of_one_cell_are_each_repeated():
    root = "rs = rlm_query_batched(['leaf'] * 3, signature='-> n: int', inputs={'from': 1})\nSUBMIT(answer=str([r.n for r in rs]))"
    ran = ran_tree(root=root)

    report = report_of(ran)

    assert ran.output == {"answer": "[2, 2, 2]"}
    assert report.verified, report.divergence
    assert report.children == len(ran.of("child_started")) == 3


def test_a_child_that_ended_without_an_answer_is_repeated_too():
    root = """
try:
    rlm_query('leaf', signature='-> n: int', inputs={'from': 1}, budget={'iterations': 2})
except SubcallError as error:
    SUBMIT(answer='none')
"""
    ran = ran_tree(root=root, leaf="print(params['inputs']['from'])")

    report = report_of(ran)

    assert report.verified, report.divergence
    assert report.children == 1
    assert report.cells == 3


class TestFile:
    """A file that was exported holds the whole tree: one chain, each event with the id of its REPL."""

    def written(self, ran: Ran, path: Path, records: list[TraceRecord]) -> Path:
        result = ran.result.model_copy(
            update={
                "trace_ref": ran.result.trace_ref.model_copy(
                    update={"events": len(records), "head": records[-1].hash}
                )
            }
        )
        header = TraceHeader(
            spec=ran.gateway.spec,
            state=result.status,
            result=result,
            events=len(records),
            head=records[-1].hash,
        )
        write_trace(path, header, records)
        return path

    def test_an_exported_tree_is_repeated_from_the_file_alone(self, honest, tmp_path):
        path = self.written(honest, tmp_path / "tree.jsonl", honest.gateway.records)

        with TraceFile(path) as trace:
            outcome = replay(trace.header.spec, verified(trace))

        assert outcome.is_same, outcome.divergence
        assert (outcome.cells, outcome.children) == (3, 2)

    def test_a_forged_child_in_a_file_is_named(self, honest, tmp_path):
        leaf = next(event.child_id for event in honest.of("child_started") if event.task == "leaf")

        def change(event):
            if event["kind"] == "subcall_finished" and event["node"] == leaf:
                return {**event, "value": {"label": "y"}}
            return event

        path = self.written(honest, tmp_path / "tree.jsonl", retold(honest.gateway.records, change))

        with TraceFile(path) as trace:
            outcome = replay(trace.header.spec, verified(trace))

        assert not outcome.is_same
        assert outcome.divergence.startswith(f"{leaf}, iteration 1")
