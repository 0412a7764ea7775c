"""Forks: a new job shares the past of another, asks nothing of it again, and goes its own way."""

import json

import pytest

from tests.e2e.cli.custody import Custody
from tests.scripted_model import ScriptedModel, cells

LABEL = '\'t -> label: Literal["x","y"]\''
CELLS = (
    f"import random, time\nfirst = predict({LABEL}, t='one').label\nprint(first, random.random(), time.time())",
    f"second = [r.label for r in predict_batch({LABEL}, [{{'t': str(i)}} for i in range(3)])]\nnote('progress', 'two')",
    "SUBMIT(answer='old ' + first)",
)


@pytest.fixture
def custody(tmp_path):
    return Custody(tmp_path)


def finished_job(custody, model) -> str:
    done = custody(
        "run", "what?", "--model", model.url, "--sub-model", model.url, "-o", "answer: str", "--json"
    )
    assert done.code == 0, done.err
    return done.document["job_id"]


@pytest.mark.requirement("LESSON-15")
def test_a_fork_shares_the_past_asks_nothing_of_it_again_and_is_charged_only_for_its_own(custody):
    with ScriptedModel(cells(*CELLS)) as model:
        source = finished_job(custody, model)
    with ScriptedModel(cells("SUBMIT(answer='new ' + first + ''.join(second))"), port=model.port) as again:
        done = custody("fork", source, "--at", "2", "--steer", "answer anew", "--json")
        asked, told = again.calls, json.dumps(again.requests[-1])

    assert done.code == 0, done.err
    fork = done.document
    assert fork["result"]["structured_output"] == {"answer": "new xxxx"}
    assert asked == 1
    assert "The operator asks: answer anew" in told
    assert "diverged" not in [event["kind"] for event in custody.events(fork["job_id"])]
    assert fork["usage"]["iterations"] == 1
    assert fork["usage"]["subcalls"] == 0
    assert fork["result"]["proposals"] == []


def test_a_fork_is_linked_in_both_directions_and_its_chain_names_the_head_it_begins_from(custody):
    with ScriptedModel(cells(*CELLS)) as model:
        source = finished_job(custody, model)
        fork = custody("fork", source, "--at", "1", "--json").document["job_id"]
        further = custody("fork", fork, "--at", "1", "--json").document

    shown = custody("show", source, "--json").document
    first = custody.events(fork)[0]
    lines = [json.loads(line) for line in custody("trace", source, "--json").out.splitlines()]
    assert shown["forks"] == [fork]
    assert first["kind"] == "forked"
    assert (first["source_job_id"], first["at"], first["subcalls"]) == (source, 1, 1)
    assert first["source_head"] == lines[first["source_events"] - 1]["hash"]
    assert further["forked_from"]["job_id"] == fork
    assert further["forked_from"]["seed_job_id"] == source
    for job_id in (source, fork, further["job_id"]):
        replayed = custody("replay", job_id, "--verify", "--json")
        assert replayed.code == 0, replayed.out + replayed.err


def test_a_fork_at_an_iteration_that_did_not_end_or_ended_in_submit_is_refused(custody):
    with ScriptedModel(cells(*CELLS)) as model:
        source = finished_job(custody, model)

    for at in ("3", "9"):
        done = custody("fork", source, "--at", at)
        assert done.code == 2
        assert "iterations 1 to 2; iteration 3 ended in SUBMIT" in done.err
    assert len(custody.jobs()) == 1


def test_a_fork_has_its_own_budget_and_the_past_is_none_of_it(custody):
    with ScriptedModel(cells(*CELLS)) as model:
        source = finished_job(custody, model)
    more = [f"print(predict({LABEL}, t='more {i}').label)" for i in range(3)]
    with ScriptedModel(cells(*more), port=model.port):
        fork = custody("fork", source, "--at", "2", "--budget", "subcalls=2", "--json").document

    assert fork["spec"]["budget"]["max_subcalls"] == 2
    assert (fork["result"]["limit"], fork["usage"]["subcalls"]) == ("subcalls", 2)
