"""One fault: the worker process is killed with -9 at a named point. Resumed, the job ends as if nothing had happened."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.bootstrap import open_app
from controlplane.config import load_settings
from rlm_worker.crashpoints import POINTS
from tests.e2e.cli.custody import Custody, environment
from tests.scripted_model import ScriptedModel, cells

CELLS = (
    "first = predict('t -> label: Literal[\"x\",\"y\"]', t='one').label",
    "rest = [r.label for r in predict_batch('n: int -> label: Literal[\"x\",\"y\"]', [{'n': i} for i in range(5)])]",
    "SUBMIT(answer=first + ''.join(rest))",
)
#: Requests that a job without a crash makes: three turns, one predict, a batch of five.
TURNS, SUBCALLS = 3, 6
#: Points at which a request has left and its answer is not yet recorded: it is asked, and paid, again.
UNRECORDED = {"turn.after_hold": 0, "subcall.after_hold": 0, "subcall.after_answer": 1}


def crash(custody: Custody, model: ScriptedModel, point: str) -> int:
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "controlplane.cli.main",
            *(
                "run",
                "what?",
                "--model",
                model.url,
                "--sub-model",
                model.url,
                "--output",
                "answer: str",
                "--quiet",
            ),
        ],
        cwd=custody.folder,
        env=environment() | {"CUSTODY_HOME": str(custody.home), "CUSTODY_CRASH_AT": point},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return process.wait(60)


def orphans() -> list[str]:
    """Zygotes and sandboxes whose worker is gone."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        if "zygote" in command and parent == 1:
            found.append(f"{folder.name} {command}")
    return found


@pytest.fixture
def custody(tmp_path: Path) -> Custody:
    return Custody(tmp_path)


@pytest.mark.requirement("S1-CAP-4", "S1-QUEUE-2", "S1-QUEUE-4", "LESSON-15", "LESSON-16", "CARD-17")
@pytest.mark.parametrize("point", sorted(POINTS))
def test_a_job_killed_here_is_finished_by_resume_and_pays_no_recorded_call_twice(custody, point):
    with ScriptedModel(cells(*CELLS)) as model:
        died = crash(custody, model, point)
        job_id = custody.jobs()[0]["job_id"]
        resumed = custody("resume", job_id, "--json")
        asked = model.calls

    events = custody.events(job_id)
    kinds = [event["kind"] for event in events]
    assert died == -signal.SIGKILL
    assert resumed.code == 0, resumed.err
    assert resumed.document["result"]["structured_output"] == {"answer": "x" * SUBCALLS}
    assert asked == TURNS + SUBCALLS + UNRECORDED.get(point, 0)
    assert kinds.count("submit_accepted") == 1
    assert kinds.count("attempt_started") == 2
    finished = [event["key"] for event in events if event["kind"] == "subcall_finished"]
    assert len(finished) == len(set(finished)) == SUBCALLS
    assert "diverged" not in kinds
    assert not orphans()


@pytest.mark.requirement("CARD-17", "S3-FOLD-1")
def test_a_job_killed_before_it_settles_is_folded_once(custody):
    with ScriptedModel(cells(*CELLS)) as model:
        crash(custody, model, "settle.before")
        job_id = custody.jobs()[0]["job_id"]
        custody("resume", job_id, "--json")

    app = open_app(load_settings({"home": custody.home}))
    try:
        job = app.job(job_id)
        kinds = [receipt.kind for receipt in app.receipts(job.task_id)]
        app.verify_receipts(job.task_id)
        app.verify_trace(job_id)
    finally:
        app.close()
    assert job.state == "succeeded"
    assert sum("fold" in kind for kind in kinds) == 1, kinds
