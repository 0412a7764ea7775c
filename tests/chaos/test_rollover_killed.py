"""One fault: the worker is killed around the moment at which a conversation starts anew. Resumed, it starts anew once."""

import re
import signal
from typing import Any

import pytest

from tests.chaos.test_worker_killed import app, crash, custody, events_of, paid
from tests.scripted_model import Reply, ScriptedModel

__all__ = ["app", "custody"]  # fixtures
STEPS = 12
SMALL = "8000"


def script(request: dict[str, Any], _number: int) -> Reply:
    """The step after the last one that the conversation shows, whole or begun anew."""
    said = " ".join(message["content"] for message in request["messages"])
    step = max((int(found) for found in re.findall(r"step (\d+)", said)), default=0) + 1
    code = f"done = {step}\nprint('step {step}', 'x' * 3000)" if step <= STEPS else "SUBMIT(answer=str(done))"
    return f"Next.\n```python\n{code}\n```"


@pytest.mark.parametrize("point", ["journal.before.rolled_over", "journal.after.rolled_over"])
def test_a_conversation_that_was_to_start_anew_does_so_once(custody, app, point):
    with ScriptedModel(script) as model:
        died = crash(custody, model, point, CUSTODY_ROLLOVER_TOKENS=SMALL)
        job_id = app.jobs()[0].job_id
        resumed = custody("resume", job_id, "--json")
        asked = model.calls

    events = events_of(app, job_id)
    rolled = [event for event in events if event.kind == "rolled_over"]
    turns = [event.iteration for event in events if event.kind == "model_answered" and event.ok]
    assert died == -signal.SIGKILL
    assert resumed.code == 0, resumed.err
    assert resumed.document["result"]["structured_output"] == {"answer": str(STEPS)}
    assert [event.number for event in rolled] == list(range(1, len(rolled) + 1))
    assert len(turns) == len(set(turns)) == STEPS + 1
    finished, lost = paid(events)
    assert finished <= asked <= finished + lost
    assert app.verify_trace(job_id) == len(events)
