"""Ctrl-C, stop, follow, crash and resume: what an operator does to a job from a shell."""

import json
import signal
import time

import pytest

from tests.e2e.cli.custody import Custody
from tests.scripted_model import ScriptedModel, cells

ENDLESS = "DRAFT(answer='half way', citations=[])\nwhile True: pass"
ARITHMETIC = "sum(range(10**11))"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_the_job_and_says_what_was_kept(custody: Custody, number):
    with ScriptedModel(cells(ENDLESS)) as model:
        running = custody.start("run", "Q", "-m", model.url)
        job_id = custody.working_job()

        running.send_signal(number)
        done = custody.finish(running)

    assert done.code == 130, done.err
    assert "half way" in done.out
    assert "Interrupted. Kept: the answer so far" in done.out
    job = custody("show", job_id, "--json").document
    assert job["state"] == "stopped"
    assert job["stop"]["survivors"] == []
    assert job["stop"]["verified_ms"] is not None


@pytest.mark.parametrize("code", [ENDLESS, ARITHMETIC])
def test_stop_from_another_shell_waits_for_the_proof(custody: Custody, code):
    with ScriptedModel(cells(code)) as model:
        running = custody.start("run", "Q", "-m", model.url, "--json")
        job_id = custody.working_job()

        stopped = custody("stop", job_id, "--reason", "enough")
        done = custody.finish(running)

    assert stopped.code == 0, stopped.err
    assert "verified after" in stopped.out
    assert "survivors: none" in stopped.out
    assert done.code == 5
    assert done.document["state"] == "stopped"

    again = custody("stop", job_id)
    assert again.code == 0
    assert "had already ended" in again.out


def test_follow_shows_the_same_events_from_another_shell(custody: Custody):
    with ScriptedModel(cells("SUBMIT(answer='x', citations=[])"), latency_seconds=0.5) as model:
        running = custody.start("run", "Q", "-m", model.url, "--json")
        custody.until(custody.jobs)
        followed = custody("trace", custody.jobs()[0]["job_id"], "--follow", "--json")
        done = custody.finish(running)

    records = [json.loads(line) for line in followed.out.splitlines()]
    assert len(records) == done.document["trace"]["events"]
    assert records[-1]["hash"] == done.document["trace"]["head"]


def test_a_killed_process_leaves_a_job_that_resume_finishes(custody: Custody):
    turns = ("a = predict('q -> n: int', q='x')\nprint(a)", "import time\ntime.sleep(4)")
    with ScriptedModel(cells(*turns)) as model:
        running = custody.start("run", "Q", "-m", model.url, "-b", "iterations=5")
        job_id = custody.until(
            lambda: next(
                (
                    job["job_id"]
                    for job in custody.jobs()
                    if [e["kind"] for e in custody.events(job["job_id"])].count("cell_proposed") == 2
                ),
                None,
            )
        )
        running.send_signal(signal.SIGKILL)
        running.wait()
        asked = model.calls
        model.script = cells("SUBMIT(answer=str(a), citations=[])")

        started = time.monotonic()
        done = custody("resume", job_id, "--json", seconds=100)
        took = time.monotonic() - started

    assert done.code == 0, done.err
    assert done.document["attempts"] == 2
    assert done.document["usage"]["subcalls"] == 1
    assert model.calls - asked <= 2
    assert took < 60


@pytest.mark.parametrize("words", [("trace", "--json"), ("trace",), ("show",)])
def test_a_reader_that_goes_away_is_no_error(custody: Custody, words):
    with ScriptedModel(cells("SUBMIT(answer='x', citations=[])")) as model:
        job_id = custody("run", "Q", "-m", model.url, "--json").document["job_id"]
    reading = custody.start(*words, job_id)
    assert reading.stdout is not None
    reading.stdout.close()

    assert reading.wait(30) == 141
    assert reading.stderr is not None
    assert reading.stderr.read() == ""


def test_a_steer_is_accepted_and_observed(custody: Custody):
    with ScriptedModel(
        cells("print(1)", "print(2)", "SUBMIT(answer='x', citations=[])"), latency_seconds=2.5
    ) as model:
        running = custody.start("run", "Q", "-m", model.url, "--json")
        custody.until(custody.jobs)
        steered = custody("steer", custody.jobs()[0]["job_id"], "look at the pump")
        done = custody.finish(running)

    assert steered.code == 0, steered.err
    assert done.code == 0, done.err
    assert "steer_observed" in [event["kind"] for event in custody.events(done.document["job_id"])]


def test_a_job_whose_worker_is_gone_can_be_stopped(custody: Custody):
    with ScriptedModel(cells(ENDLESS)) as model:
        running = custody.start("run", "Q", "-m", model.url)
        job_id = custody.working_job()
        running.send_signal(signal.SIGKILL)
        running.wait()

        stopped = custody("stop", job_id)

    assert stopped.code == 0, stopped.out
    assert custody("show", job_id, "--json").document["state"] == "stopped"


def test_a_stop_of_a_worker_that_does_not_answer_is_not_called_verified(custody: Custody):
    (custody.folder / "custody.toml").write_text("lease_seconds = 1\n", encoding="utf-8")
    with ScriptedModel(cells(ENDLESS)) as model:
        running = custody.start("run", "Q", "-m", model.url)
        job_id = custody.working_job()
        running.send_signal(signal.SIGSTOP)
        try:
            stopped = custody("stop", job_id, "--timeout", "30")
            again = custody("stop", job_id)
        finally:
            running.send_signal(signal.SIGKILL)
            running.wait()

    assert stopped.code == again.code == 4, stopped.out
    assert f"NOT verified; it may still be at work in process {running.pid}" in " ".join(stopped.out.split())
    shown = custody("show", job_id, "--json").document
    assert (shown["state"], shown["stop"]["verified_at"]) == ("stopped", None)
    assert shown["stop"]["survivors"] == [running.pid]


def test_an_attempt_that_is_lost_is_in_the_log_and_not_on_the_terminal(custody: Custody):
    (custody.folder / "custody.toml").write_text("lease_seconds = 1\n", encoding="utf-8")
    with ScriptedModel(cells(ENDLESS)) as model:
        running = custody.start("run", "Q", "-m", model.url, "--quiet")
        job_id = custody.working_job()
        running.send_signal(signal.SIGSTOP)
        assert custody("stop", job_id, "--timeout", "30").code == 4
        running.send_signal(signal.SIGCONT)
        done = custody.finish(running)

    assert done.code == 5
    assert done.err == ""
    assert "attempt_lost" in (custody.home / "log" / "custody.log").read_text(encoding="utf-8")


def test_two_presses_kill(custody: Custody):
    with ScriptedModel(cells(ENDLESS)) as model:
        running = custody.start("run", "Q", "-m", model.url)
        job_id = custody.working_job()

        running.send_signal(signal.SIGINT)
        running.send_signal(signal.SIGTERM)
        done = custody.finish(running)

    assert done.code == 130, done.err
    assert custody("show", job_id, "--json").document["state"] == "stopped"


def test_a_stop_after_kill_9_keeps_the_draft(custody: Custody):
    (custody.folder / "book.py").write_text("# %%\nDRAFT(answer='so far')\n# %%\nwhile True: pass\n")
    process = custody.start("run", "q", "--playbook", "book.py", "--output", "answer: str")
    job_id = custody.until(lambda: next((job["job_id"] for job in custody.jobs()), None))
    custody.until(lambda: [e["kind"] for e in custody.events(job_id)].count("cell_proposed") == 2)
    process.kill()
    process.wait()

    shown = custody("show", job_id)
    stopped = custody("stop", job_id, "--json")

    assert f"custody resume {job_id}" in shown.out
    assert stopped.document["result"]["structured_output"] == {"answer": "so far"}
    assert stopped.document["result"]["answered_by"] == "draft"
