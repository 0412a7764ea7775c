"""One fault: the worker process is killed with -9 at a named point. Resumed, the job ends as if nothing had happened."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sandbox
from controlplane import crashpoints as of_controlplane
from controlplane.bootstrap import App, open_app
from controlplane.cli.watch import pages
from controlplane.config import load_settings
from rlm_worker import crashpoints as of_worker
from rlm_worker.contracts.trace import EVENT_KINDS, TraceEvent
from tests.e2e.cli.custody import Custody, environment
from tests.scripted_model import Reply, ScriptedModel, echo_schema, schema_of

ROOT = Path(__file__).parents[2]
LABEL = '\'t -> label: Literal["x","y"]\''
TURNS = (
    "I shall look at the evidence first.",
    f"""```python
import time, uuid
first = predict({LABEL}, t=f"one {{time.time()}} {{uuid.uuid4()}}").label
print(budget().subcalls, first)
note("progress", "one")
DRAFT(answer=first)
```""",
    f"""```python
rest = [r.label for r in predict_batch({LABEL}, [{{'t': str(i)}} for i in range(5)])]
deep = rlm_query("look deeper", signature="-> word: str").word
(workspace / "out.csv").write_text("a,b")
```""",
    "```python\nSUBMIT(wrong=1)\n```",
    "```python\nSUBMIT(answer=first + ''.join(rest) + deep)\n```",
)
CHILD_TURNS = (f"```python\nSUBMIT(word='d' + predict({LABEL}, t='child').label)\n```",)
ANSWER = "x" * 6 + "dx"

#: Kinds of events that the job below does not write by itself; other tests kill a worker around them, or none writes them.
ELSEWHERE = {
    "subcall_lost": "written by the attempt after a crash",
    "policy_denied": "written by nobody yet",
    "budget_exhausted": "an ending by a limit: tests/integration/worker/test_limits.py",
    "no_progress": "an ending of its own: tests/integration/worker/test_engine.py",
    "steer_observed": "tests/integration/worker/test_steers.py resumes after it",
    "stop_observed": "tests/integration/controlplane/test_controlplane_crashes.py",
    "stop_verified": "tests/integration/controlplane/test_controlplane_crashes.py",
    "retuned": "tests/integration/worker/test_pause_and_retune.py",
    "diverged": "a finding, which must not occur here",
    "forked": "written by the control plane in the transaction of the fork",
    "question_asked": "tests/chaos/test_asker_killed.py",
    "question_answered": "tests/chaos/test_asker_killed.py",
    "parked": "tests/chaos/test_parker_killed.py",
    "rolled_over": "tests/chaos/test_rollover_killed.py",
    "answer_extracted": "an ending without SUBMIT and DRAFT",
    "prompt_shortened": "written when a prompt does not fit its model",
}
WRITES = [f"{when}.{kind}" for when in of_worker.WRITES for kind in sorted(set(EVENT_KINDS) - set(ELSEWHERE))]
#: Points that no single job in its own process comes to, and who comes there.
OTHERS = {
    "park.": "test_asker_killed.py, test_parker_killed.py",
    "cool.": "tests/integration/controlplane/test_controlplane_cold.py",
    "dispatch.": "tests/integration/controlplane/test_controlplane_crashes.py: a job of one's own is sent by an errand",
}
NAMED = of_worker.POINTS | of_controlplane.POINTS
POINTS = sorted(point for point in NAMED if not point.startswith(tuple(OTHERS))) + WRITES


def script(request: dict[str, Any], n: int) -> Reply:
    """The turn that follows from the conversation, however often it is asked for."""
    if schema_of(request) is not None:
        return echo_schema(request, n)
    turns = CHILD_TURNS if "look deeper" in request["messages"][1]["content"] else TURNS
    said = sum(message["role"] == "assistant" for message in request["messages"])
    return turns[min(said, len(turns) - 1)]


def crash(custody: Custody, model: ScriptedModel, point: str, **settings: str) -> int:
    words = ("run", "what?", "-e", "notes.txt", "--model", model.url, "--sub-model", model.url)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "controlplane.cli.main", *words),
            *("--output", "answer: str", "--collect", "*.csv", "--quiet"),
        ],
        cwd=custody.folder,
        env=environment() | {"CUSTODY_HOME": str(custody.home), "CUSTODY_CRASH_AT": point} | settings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    return process.wait(60)


CHECKOUT = Path(sandbox.__file__).parent.parent


def orphans() -> list[str]:
    """Zygotes and sandboxes of this checkout whose worker is gone."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            parent = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError, ValueError):
            continue
        if "zygote" in command and str(CHECKOUT) in command and parent == 1:
            found.append(f"{folder.name} {command}")
    return found


@pytest.fixture
def custody(tmp_path: Path) -> Custody:
    (tmp_path / "notes.txt").write_text("nothing to see\n")
    return Custody(tmp_path)


@pytest.fixture
def app(custody: Custody) -> Iterator[App]:
    """The home as it is when a test looks at it, not before."""
    custody.home.mkdir()
    app = open_app(load_settings({"home": custody.home}))
    yield app
    app.close()


def events_of(app: App, job_id: str) -> list[TraceEvent]:
    return [record.typed() for record in pages(app, job_id, after=0)]


def paid(events: list[TraceEvent]) -> tuple[int, int]:
    """Calls whose answer stands in the record, and calls that were charged without one."""
    finished = sum(event.kind in ("subcall_finished", "model_answered") and event.ok for event in events)
    lost = sum(
        event.kind == "subcall_lost" or (event.kind == "model_answered" and not event.ok) for event in events
    )
    return finished, lost


@pytest.mark.requirement(
    "S1-CAP-4", "S1-QUEUE-2", "S1-QUEUE-4", "LESSON-15", "LESSON-16", "CARD-17", "S3X-RLM-3", "S2-FAQ-1"
)
@pytest.mark.parametrize("point", POINTS)
def test_a_job_killed_here_is_finished_by_resume_and_pays_no_recorded_call_twice(custody, app, point):
    with ScriptedModel(script) as model:
        died = crash(custody, model, point)
        job_id = app.jobs()[0].job_id
        resumed = custody("resume", job_id, "--json")
        asked = model.calls

    events = events_of(app, job_id)
    kinds = [event.kind for event in events]
    assert died == -signal.SIGKILL, "no job came to this point: give it a case"
    assert resumed.code == 0, resumed.err
    assert resumed.document["result"]["structured_output"] == {"answer": ANSWER}
    finished, lost = paid(events)
    assert finished <= asked <= finished + lost
    keys = [event.key for event in events if event.kind == "subcall_finished"]
    turns = [(event.node, event.iteration) for event in events if event.kind == "model_answered" and event.ok]
    assert len(keys) == len(set(keys)) == 7
    assert len(turns) == len(set(turns)) == len(TURNS) + len(CHILD_TURNS)
    assert [event.node for event in events if event.kind == "submit_accepted"].count("") == 1
    assert "diverged" not in kinds
    assert app.verify_trace(job_id) == len(events)
    app.verify_receipts(app.job(job_id).task_id)
    assert not orphans()


def test_every_kind_of_event_is_written_by_the_job_or_named_with_a_reason(custody, app):
    with ScriptedModel(script) as model:
        crash(custody, model, "")
        written = {event.kind for event in events_of(app, app.jobs()[0].job_id)}

    assert written == set(EVENT_KINDS) - set(ELSEWHERE)


def test_every_point_in_the_code_is_listed_and_every_listed_one_is_in_the_code():
    for package, listed in (("rlm_worker", of_worker.POINTS), ("controlplane", of_controlplane.POINTS)):
        found = {
            name
            for path in (ROOT / package).rglob("*.py")
            for name in re.findall(r'crash_here\("([^"]+)"\)', path.read_text(encoding="utf-8"))
        }
        assert found == listed


@pytest.mark.requirement("CARD-17", "S3-FOLD-1")
def test_a_job_killed_before_it_settles_is_folded_once(custody, app):
    with ScriptedModel(script) as model:
        crash(custody, model, "settle.before")
        job_id = app.jobs()[0].job_id
        custody("resume", job_id, "--json")

    job = app.job(job_id)
    kinds = [receipt.kind for receipt in app.receipts(job.task_id)]
    assert job.state == "succeeded"
    assert sum("fold" in kind for kind in kinds) == 1, kinds
