"""`custody run` from the shell to the folded result, with a model that is a real server on loopback."""

import json

import pytest

from tests.e2e.cli.custody import Custody
from tests.scripted_model import ScriptedModel, cells

FIND = "hits = list(evidence.search('failed'))\nprint(hits[0].citation)"
ASK = "kind = predict(\"line -> kind: Literal['fault', 'other']\", line=hits[0].text)\nprint(kind)"
SUBMIT = "SUBMIT(answer=hits[0].text, citations=[hits[0].citation])"


@pytest.mark.requirement("N3-PLAN-8", "N3-FAIL-10")
def test_a_question_is_answered_and_every_other_command_can_tell_about_it(custody: Custody):
    with ScriptedModel(cells(FIND, ASK, SUBMIT)) as model:
        done = custody(
            "run", "What failed?", "--evidence", "notes.txt", "--model", model.url, "--label", "a=b", "--json"
        )

    assert done.code == 0, done.err
    assert done.err == ""
    job = done.document
    assert job["state"] == "succeeded"
    assert job["result"]["structured_output"]["answer"] == "the pump failed at noon"
    assert job["result"]["citations"] == {
        "checked": 1,
        "verified": 1,
        "missing": [],
        "quotes_checked": 0,
        "quotes_verified": 0,
        "misquoted": [],
    }
    assert job["usage"]["iterations"] == 3
    assert job["usage"]["subcalls"] == 1
    assert job["labels"] == {"a": "b"}
    assert job["receipt_id"]
    job_id = job["job_id"]

    listed = custody("jobs")
    assert job_id in listed.out
    assert "succeeded" in listed.out

    shown = custody("show", job_id[:-4])
    assert "1 of 1 citations checked and found" in shown.out
    assert job["receipt_id"] in shown.out

    trace = custody("trace", job_id)
    assert "evidence.search('failed')" in trace.out
    assert "subcall" in trace.out

    replayed = custody("replay", job_id, "--verify", "--json")
    assert replayed.code == 0, replayed.err
    assert replayed.document["result_same"] is True
    assert replayed.document["same"] == replayed.document["cells"] == 3


def test_on_a_pipe_the_work_goes_to_stderr_and_the_answer_to_stdout(custody: Custody):
    with ScriptedModel(cells(FIND, SUBMIT)) as model:
        done = custody("run", "What failed?", "-e", "notes.txt", "-m", model.url)

    assert done.code == 0, done.err
    assert "the pump failed at noon" in done.out
    assert "custody replay" in done.out
    assert "cell 1 by model" in done.err
    assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["Q", "-e", "missing.txt", "-m", "MODEL"], "there is no evidence at 'missing.txt'"),
        (["Q", "-e", "", "-m", "MODEL"], "an evidence source is empty"),
        (["Q", "-m", "MODEL", "-o", "answer: strong"], "unknown type 'strong'"),
        (["Q", "-m", "nothing"], "no model goes by this name"),
        (["Q", "-m", "MODEL", "-b", "iterations=many"], "'many' is not an amount of iterations"),
        (["Q", "-m", "MODEL", "-b", "iteration=2"], "Did you mean 'iterations'?"),
        (["Q"], "the embedded model can fill types but cannot write cells"),
        ([], "Missing argument 'QUESTION'"),
    ],
)
def test_bad_input_is_one_paragraph_exit_2_and_nothing_half_made(custody: Custody, words, says):
    words = ["http://127.0.0.1:9/v1#m" if word == "MODEL" else word for word in words]
    before = sorted(custody.folder.iterdir())

    done = custody("run", *words)

    assert done.code == 2
    assert done.out == ""
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert sorted(custody.folder.iterdir()) == before


def test_a_limit_gives_the_draft_labelled_partial_and_exit_3(custody: Custody):
    with ScriptedModel(cells("DRAFT(answer='so far', citations=[])")) as model:
        done = custody("run", "Q", "-m", model.url, "-b", "iterations=2", "--quiet")

    assert done.code == 3, done.err
    assert "Partial answer" in done.out
    assert "the limit on iterations ended the job" in done.out
    assert "so far" in done.out


def test_a_model_that_cannot_be_reached_fails_the_job_with_exit_4(custody: Custody):
    done = custody("run", "Q", "-m", "http://127.0.0.1:9/v1#gone", "--json", seconds=90)

    assert done.code == 4, done.err
    assert done.document["result"]["failure_class"] in ("model_error", "backend_unavailable")


def test_a_changed_trace_is_refused_and_the_place_is_named(custody: Custody):
    with ScriptedModel(cells(FIND, SUBMIT)) as model:
        job_id = custody("run", "Q", "-e", "notes.txt", "-m", model.url, "--json").document["job_id"]
    lines = custody("trace", job_id, "--json").out.splitlines()
    place = next(n for n, line in enumerate(lines) if json.loads(line)["event"]["kind"] == "cell_proposed")
    lines[place] = lines[place].replace("failed", "fainted", 1)
    (custody.folder / "changed.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")

    done = custody("replay", job_id, "--verify", "--trace", "changed.jsonl")

    assert done.code == 4
    assert f"trace event {place}" in done.err
    assert "does not match its hash" in done.err


def test_a_detached_job_waits_for_a_worker(custody: Custody):
    with ScriptedModel(cells(FIND, SUBMIT)) as model:
        job_id = custody("run", "Q", "-e", "notes.txt", "-m", model.url, "--detach").out.strip()
        assert custody.jobs()[0]["state"] == "queued"

        worked = custody("worker", "--once")

    assert worked.code == 0, worked.err
    assert f"job {job_id}: succeeded" in worked.err
    assert custody("show", job_id, "--json").document["state"] == "succeeded"


def test_reading_commands_make_no_home(custody: Custody):
    done = custody("jobs")

    assert done.code == 2
    assert "there is no home" in done.err
    assert not custody.home.exists()


def test_an_unknown_job_is_usage(custody: Custody):
    with ScriptedModel(cells("SUBMIT(answer='x', citations=[])")) as model:
        custody("run", "Q", "-m", model.url, "-q")

    done = custody("show", "job_nothing", "--json")

    assert done.code == 2
    assert done.document["error"]["exit_code"] == 2


def test_a_replay_names_the_evidence_that_changed(custody: Custody):
    with ScriptedModel(cells("SUBMIT(answer='x', citations=[])")) as model:
        done = custody("run", "Q", "-e", "notes.txt", "-m", model.url, "--json")
    assert done.code == 0, done.err
    (custody.folder / "notes.txt").write_text("something else\n", encoding="utf-8")

    replayed = custody("replay", done.document["job_id"], "--verify")

    assert replayed.code == 4
    assert "evidence: NOT what the job read, it was changed since: notes.txt" in replayed.out
