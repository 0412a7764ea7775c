"""A job that asks a person: seen, answered and finished from the command line, by processes that know nothing of each other."""

import pytest

from controlplane.bootstrap import open_app
from controlplane.config import load_settings
from tests.e2e.cli.custody import Custody

PLAYBOOK = """# %%
found = [len(str(i)) for i in range(5)]
# %%
year = ask("Which year is meant?", int, timeout=3600)
SUBMIT(answer=f"{year + 1} {sum(found)}")
"""


@pytest.fixture
def custody(tmp_path):
    (tmp_path / "asks.py").write_text(PLAYBOOK)
    return Custody(tmp_path)


def ask(custody) -> str:
    done = custody(
        "run",
        "when?",
        "--playbook",
        "asks.py",
        "-o",
        "answer: str",
        "--sub-model",
        "http://127.0.0.1:9/v1#none",
    )
    assert done.code == 6, done.err
    assert "asks (until" in done.out
    assert "Which year is meant?" in done.out
    return custody.jobs()[0]["job_id"]


def test_a_question_waits_without_a_process_and_its_answer_ends_the_job(custody):
    job_id = ask(custody)
    listed = custody("ask", "list", "--json").document["questions"]
    shown = custody("show", job_id, "--json").document
    wrong = custody("answer", job_id, '"soon"')
    right = custody("answer", job_id, "2023", "--json")
    twice = custody("answer", job_id, "2024")
    resumed = custody("resume", job_id, "--json")

    assert [(q["job_id"], q["text"], q["schema"]) for q in listed] == [
        (job_id, "Which year is meant?", {"type": "integer"})
    ]
    assert (shown["state"], shown["lease"]) == ("parked", None)
    assert "an answer" in shown["waiting_for"]
    assert wrong.code == 2
    assert "does not fit question" in wrong.err
    assert right.document["accepted"] is True
    assert twice.code == 2
    assert resumed.code == 0, resumed.err
    assert resumed.document["result"]["structured_output"] == {"answer": "2024 5"}
    assert custody("replay", job_id, "--verify").code == 0
    assert custody("ask", "list", "--json").document == {"questions": []}


def test_who_answered_stands_in_a_receipt_and_in_the_trace(custody):
    job_id = ask(custody)
    custody("answer", job_id, "2023")
    custody("resume", job_id, "--json")

    app = open_app(load_settings({"home": custody.home}))
    try:
        task_id = app.job(job_id).task_id
        (receipt,) = [found for found in app.receipts(task_id) if found.kind == "job_answered"]
        app.verify_receipts(task_id)
    finally:
        app.close()
    (answered,) = [event for event in custody.events(job_id) if event["kind"] == "question_answered"]
    assert answered["by"] == receipt.body["by"] != ""
    assert answered["value"] == 2023
    assert abs(receipt.at.timestamp() * 1000 - answered["answered_ms"]) < 2_000


def test_a_job_that_waits_for_an_answer_can_be_stopped(custody):
    job_id = ask(custody)

    done = custody("stop", job_id)

    assert done.code == 0, done.err
    assert custody("show", job_id, "--json").document["state"] == "stopped"
    assert custody("answer", job_id, "2023").code == 2
