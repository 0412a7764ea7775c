"""One fault: the worker dies with -9 while it parks a job for a rate limit. Freed, the job ends as if nothing had happened."""

import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane import crashpoints as of_controlplane
from controlplane.bootstrap import App, open_app
from controlplane.config import load_settings
from controlplane.domain.budget import NOTHING
from rlm_worker import crashpoints as of_worker
from tests.chaos.test_asker_killed import crash
from tests.e2e.cli.custody import Custody
from tests.scripted_model import Fault, Reply, ScriptedModel, echo_schema, schema_of

LABEL = '\'t -> label: Literal["x","y"]\''
TURNS = (
    f"```python\nfirst = predict({LABEL}, t='one').label\nprint(first)\n```",
    f"```python\nrest = [r.label for r in predict_batch({LABEL}, [{{'t': f'row {{n}}'}} for n in range(5)])]\n```",
    "```python\nSUBMIT(answer=first + ''.join(rest))\n```",
)
LIMITED = Fault(429, {"error": {"message": "slow down"}}, {"Retry-After": "3600"})
PARKING = sorted(
    point for point in of_worker.POINTS | of_controlplane.POINTS if point.startswith("park.")
) + [f"{when}.parked" for when in of_worker.WRITES]


class Limited:
    """A model that answers everything but one row until it is freed, and counts what it was paid for."""

    def __init__(self) -> None:
        self.is_freed = False
        self.paid: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, request: dict[str, Any], n: int) -> Reply:
        words = json.dumps(request["messages"])
        if schema_of(request) is not None and "row 3" in words and not self.is_freed:
            return LIMITED
        with self._lock:
            self.paid[words] += 1
        if schema_of(request) is not None:
            return echo_schema(request, n)
        said = sum(message["role"] == "assistant" for message in request["messages"])
        return TURNS[min(said, len(TURNS) - 1)]


@pytest.fixture
def custody(tmp_path: Path) -> Custody:
    return Custody(tmp_path)


@pytest.fixture
def app(custody: Custody) -> Iterator[App]:
    custody.home.mkdir()
    app = open_app(load_settings({"home": custody.home}))
    yield app
    app.close()


@pytest.mark.requirement("S1-QUEUE-2", "CARD-17", "LESSON-14")
@pytest.mark.parametrize("point", PARKING)
def test_a_job_killed_while_it_parks_ends_with_the_same_answer_and_pays_no_call_twice(custody, app, point):
    limited = Limited()
    with ScriptedModel(limited) as model:
        words = ("run", "what?", "--model", model.url, "--sub-model", model.url, "-o", "answer: str")
        died = crash(custody, point, *words, "--quiet")
        job = app.jobs()[0]
        before = dict(limited.paid)
        limited.is_freed = True
        app.unpark(job.job_id, by="ada")
        resumed = custody("resume", job.job_id, "--json")

    assert died == -signal.SIGKILL, "the job did not come to this point"
    assert job.state == ("parked" if point in ("park.after_commit", "park.after") else "running")
    assert resumed.code == 0, resumed.err
    assert resumed.document["result"]["structured_output"] == {"answer": "x" * 6}
    assert len(before) == 2 + 1 + 4, "two turns, one subcall and four rows were answered before"
    assert set(limited.paid.values()) == {1}, "no call was paid twice"
    assert len(limited.paid) == len(TURNS) + 6
    events = custody.events(job.job_id)
    assert "diverged" not in [event["kind"] for event in events]
    let_go = [event["charged"] for event in events if event["kind"] == "subcall_lost"]
    assert [charged["subcalls"] + charged["input_tokens"] for charged in let_go] == [0], "the limited row"
    with app.store.read() as tx:
        tenant = tx.budgets.get("tenant:local")
        entries = tx.budgets.entries("tenant:local")
    assert tenant.held == NOTHING
    assert tenant.spent.subcalls == resumed.document["usage"]["subcalls"] == 6
    settled = [entry.amount for entry in entries if entry.kind == "settle"]
    assert sum(amount.subcalls for amount in settled) == 6
    assert app.verify_trace(job.job_id) == app.job(job.job_id).trace_events
    app.verify_receipts(job.task_id)
    assert custody("replay", job.job_id, "--verify").code == 0
