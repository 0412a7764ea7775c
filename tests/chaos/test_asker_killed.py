"""One fault: the worker dies with -9 around a question to a person. The question is asked once, its answer is used once."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane import crashpoints as of_controlplane
from rlm_worker import crashpoints as of_worker
from rlm_worker.crashpoints import WRITES
from tests.e2e.cli.custody import Custody, environment

PLAYBOOK = """# %%
import time
began = time.time()
# %%
year = ask(f"Which year, at {began}?", int)
SUBMIT(answer=str(year + 1))
"""
ASKING = [f"{when}.{kind}" for when in WRITES for kind in ("question_asked", "parked")] + sorted(
    point for point in of_controlplane.POINTS | of_worker.POINTS if point.startswith("park.")
)
ANSWERING = [f"{when}.question_answered" for when in WRITES]
RUN = (
    *("run", "when?", "--playbook", "asks.py", "-o", "answer: str"),
    *("--sub-model", "http://127.0.0.1:9/v1#none", "--quiet"),
)


@pytest.fixture
def custody(tmp_path: Path) -> Custody:
    (tmp_path / "asks.py").write_text(PLAYBOOK)
    return Custody(tmp_path)


def crash(custody: Custody, point: str, *words: str) -> int:
    process = subprocess.Popen(
        [sys.executable, "-m", "controlplane.cli.main", *words],
        cwd=custody.folder,
        env=environment() | {"CUSTODY_HOME": str(custody.home), "CUSTODY_CRASH_AT": point},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return process.wait(60)


def finish(custody: Custody, job_id: str) -> None:
    """Whatever is left to do: parked again, answered, resumed."""
    if custody("show", job_id, "--json").document["state"] != "parked":
        assert custody("resume", job_id, "--quiet").code == 6
    assert custody("answer", job_id, "2023").code == 0
    end(custody, job_id)


def end(custody: Custody, job_id: str) -> None:
    resumed = custody("resume", job_id, "--json")
    kinds = [event["kind"] for event in custody.events(job_id)]
    assert resumed.code == 0, resumed.err
    assert resumed.document["result"]["structured_output"] == {"answer": "2024"}
    assert kinds.count("question_asked") == kinds.count("question_answered") == 1
    assert "diverged" not in kinds
    assert custody("replay", job_id, "--verify").code == 0


@pytest.mark.requirement("S1-QUEUE-2", "CARD-17")
@pytest.mark.parametrize("point", ASKING)
def test_a_job_killed_while_it_asks_asks_once_and_ends_with_the_answer(custody, point):
    died = crash(custody, point, *RUN)
    job_id = custody.jobs()[0]["job_id"]

    assert died == -signal.SIGKILL
    finish(custody, job_id)


@pytest.mark.requirement("S1-QUEUE-2", "CARD-17")
@pytest.mark.parametrize("point", ANSWERING)
def test_a_job_killed_while_it_takes_up_an_answer_ends_with_it(custody, point):
    assert custody(*RUN).code == 6
    job_id = custody.jobs()[0]["job_id"]
    assert custody("answer", job_id, "2023").code == 0

    died = crash(custody, point, "resume", job_id, "--quiet")

    assert died == -signal.SIGKILL
    end(custody, job_id)
