"""What a trace says has happened, folded in order; and how it is served to a cell that runs again."""

import asyncio

import pytest

from rlm_worker.contracts.trace import (
    AttemptStarted,
    CellFinished,
    CellProposed,
    CellRejected,
    ChildFinished,
    ChildStarted,
    DraftRecorded,
    EvidenceSealed,
    Hold,
    HostCallFinished,
    ModelAnswered,
    ModelAsked,
    ProposalMade,
    Spend,
    SteerObserved,
    SubcallFinished,
    SubcallLost,
    SubcallStarted,
    SubmitAccepted,
)
from rlm_worker.drivers.driver import Cell, Finished, NoCell, View
from rlm_worker.drivers.recording import RecordingDriver, recorded_step
from rlm_worker.execution import Execution, NotRecorded
from rlm_worker.journal import Journal

KEY, OTHER = "a" * 64, "b" * 64


def folded(*events) -> Journal:
    journal = Journal()
    for event in events:
        journal.fold(event)
    return journal


def started(ordinal: int, *, key: str = KEY, node: str = "", iteration: int = 1) -> SubcallStarted:
    return SubcallStarted(
        node=node,
        iteration=iteration,
        ordinal=ordinal,
        key=key,
        model="m",
        signature="",
        inputs={},
        hold=Hold(),
    )


def finished(
    ordinal: int, value=None, *, key: str = KEY, ok: bool = True, iteration: int = 1, node: str = ""
):
    return SubcallFinished(
        node=node, iteration=iteration, ordinal=ordinal, key=key, model="m", ok=ok, value=value, spend=Spend()
    )


def a_cell(iteration: int = 1, **said) -> CellFinished:
    given = {"outcome": "ok", "stdout": "", "stderr": "", "stdout_bytes": 0, "stderr_bytes": 0, "digest": KEY}
    return CellFinished.model_validate({"iteration": iteration, **given, **said})


def proposed(iteration: int, code: str = "x") -> CellProposed:
    return CellProposed(iteration=iteration, driver="model", code=code)


def answered(iteration: int, ordinal: int, text: str, *, ok: bool = True) -> ModelAnswered:
    return ModelAnswered(iteration=iteration, ordinal=ordinal, model="m", text=text, spend=Spend(), ok=ok)


def test_a_call_is_open_until_it_is_answered_or_lost():
    asked = ModelAsked(iteration=1, ordinal=3, model="m", prompt_digest=KEY, hold=Hold())
    journal = folded(started(1), started(2), asked, started(4), finished(1))
    assert list(journal.open) == [2, 3, 4]

    journal.fold(SubcallLost(ordinal=2, key=KEY, charged=Hold()))
    journal.fold(answered(1, 3, "", ok=False))

    assert list(journal.open) == [4]


def test_ordinals_go_on_after_the_highest_of_the_record():
    journal = folded(started(7), finished(7), started(3))

    assert [journal.take_ordinal(), journal.take_ordinal()] == [8, 9]


def test_the_first_good_answer_of_a_question_is_the_one_kept_for_it():
    journal = folded(finished(1, ok=False), finished(2, {"n": 1}), finished(3, {"n": 2}))

    assert journal.answers[KEY].value == {"n": 1}


def test_outcomes_belong_to_their_iteration_and_node():
    journal = folded(
        finished(1, 1, iteration=1), finished(2, 2, iteration=2), finished(3, 3, iteration=1, node="child.1")
    )

    assert [outcome.value for outcome in journal.nodes[""].at(1).outcomes[KEY]] == [1]
    assert [outcome.value for outcome in journal.nodes[""].at(2).outcomes[KEY]] == [2]
    assert [outcome.value for outcome in journal.nodes["child.1"].at(1).outcomes[KEY]] == [3]


def test_the_last_draft_and_the_last_submit_count():
    journal = folded(
        DraftRecorded(iteration=1, fields={"n": 1}),
        DraftRecorded(iteration=1, fields={"n": 2}),
        DraftRecorded(node="child.1", iteration=1, fields={"n": 3}),
        SubmitAccepted(iteration=2, fields={"n": 4}),
    )

    assert journal.nodes[""].draft == {"n": 2}
    assert journal.nodes["child.1"].draft == {"n": 3}
    assert journal.nodes[""].submitted == {"n": 4}


def test_a_lost_turn_leaves_no_text_to_go_on_with():
    assert folded(answered(1, 1, "", ok=False)).nodes[""].iterations == {}
    assert folded(answered(1, 1, "text")).nodes[""].at(1).asked.text == "text"


def test_the_rest_of_a_job_is_folded_too():
    journal = folded(
        AttemptStarted(attempt=2, worker_id="w"),
        EvidenceSealed(name="log", content_digest=KEY),
        ProposalMade(iteration=1, proposal={"kind": "note", "body": {}}),
        SteerObserved(iteration=2, steer_id=5, text="hurry"),
        a_cell(stdout="first"),
        a_cell(2, stderr="oops"),
    )

    assert journal.attempts == 2
    assert set(journal.sealed) == {"log"}
    assert len(journal.proposals) == 1
    assert journal.steer_seen == 5
    assert (journal.stdout_tail, journal.stderr_tail) == ("first", "oops")


def at(*events, live: bool = False) -> Execution:
    return Execution(folded(*events).nodes[""].at(1), node="", live=live)


def test_answers_are_served_once_each_in_their_order():
    cell = at(
        finished(1, "failed", ok=False), finished(2, "then"), finished(3, "other", key=OTHER), live=True
    )

    assert [cell.outcome(KEY).value, cell.outcome(OTHER).value, cell.outcome(KEY).value] == [
        "failed",
        "other",
        "then",
    ]
    assert cell.outcome(KEY) is None


def test_a_repeated_cell_shares_the_last_answer_as_equal_calls_under_way_did():
    cell = at(finished(1, "failed", ok=False))

    assert [cell.outcome(KEY).value, cell.outcome(KEY).value] == ["failed", "failed"]


def test_an_execution_leaves_the_record_as_it_is():
    journal = folded(finished(1, "x"))
    recorded = journal.nodes[""].at(1)

    for _ in range(2):
        assert Execution(recorded, node="", live=False).outcome(KEY).value == "x"


def host_call(name: str, answer, *, ok: bool = True, error: str = "") -> HostCallFinished:
    return HostCallFinished(
        iteration=1, ordinal=1, name=name, payload_digest=KEY, answer=answer, ok=ok, error=error
    )


def test_host_calls_are_served_by_name_in_their_order():
    cell = at(host_call("budget", 1), host_call("tool", 2), host_call("budget", 3))

    assert [
        cell.host_call("budget", KEY).answer,
        cell.host_call("budget", KEY).answer,
        cell.host_call("tool", KEY).answer,
    ] == [
        1,
        3,
        2,
    ]


def test_a_refusal_is_served_to_the_very_call_that_met_it():
    refused = host_call("predict", {"refused": "subcalls", "calls_before": 1}, ok=False, error="no")
    cell = at(refused)

    assert cell.refusal("predict", KEY, cell.count("predict", KEY)) is None
    assert cell.refusal("predict", OTHER, cell.count("predict", OTHER)) is None
    assert cell.refusal("predict", KEY, cell.count("predict", KEY)) == refused
    assert cell.refusal("predict", KEY, cell.count("predict", KEY)) is None
    assert cell.host_call("predict", KEY) is None


def test_a_repeated_cell_may_ask_nothing_new():
    cell = at()

    with pytest.raises(NotRecorded, match="a predict"):
        cell.must_be_live("a predict() call")

    assert cell.missing == ["a predict() call"]
    at(live=True).must_be_live("a predict() call")


def test_a_child_that_had_begun_is_known_by_what_was_asked():
    begun = ChildStarted(iteration=1, ordinal=1, key=KEY, child_id="child.1", task="t", request={})
    ended = ChildFinished(iteration=1, ordinal=1, key=KEY, child_id="child.1", ok=True, value={"n": 1})
    cell = at(begun, ended)

    assert (cell.child(KEY), cell.child(KEY)) == (begun, None)
    assert cell.outcome(KEY) == ended


def next_turn(journal: Journal, iteration: int):
    view = View(question="q", output_schema={}, iteration=iteration, history=())
    return asyncio.run(RecordingDriver(journal.nodes[""]).next(view))


def test_a_recording_serves_its_turns_and_then_has_no_more():
    journal = folded(proposed(1, "x = 1"), CellRejected(iteration=2, reason="no code"))

    assert next_turn(journal, 1) == Cell(code="x = 1")
    assert next_turn(journal, 2) == NoCell(reason="no code")
    assert next_turn(journal, 3) == Finished()


def test_a_finished_iteration_becomes_a_step_with_what_was_said_and_asked():
    journal = folded(
        SteerObserved(iteration=1, steer_id=1, text="hurry"),
        answered(1, 1, "raw text"),
        proposed(1),
        a_cell(1),
    )

    step = recorded_step(journal.nodes[""], 1)

    assert (step.said, step.notices) == ("raw text", ("The operator asks: hurry",))
    assert step.outcome == a_cell(1)


def test_an_iteration_that_did_not_finish_is_no_step():
    assert recorded_step(folded(answered(1, 1, "x"), proposed(1)).nodes[""], 1) is None
