"""Secrets that cells meet are in no record and break no replay; what each call cost is exact, however many run at once."""

import asyncio
import json

from rlm_worker.replay import verify_replay
from tests.builders import a_spec, evidence_of
from tests.engine import Ran, attempt, run_job
from tests.memory_gateway import MemoryGateway
from tests.scripted_model import Answer, ScriptedModel, schema_of, usage_of

KEY = "sk-" + "proj-" + "Zz9" * 12


def test_a_secret_in_the_evidence_reaches_no_record_and_the_job_still_replays(tmp_path):
    config = tmp_path / "config.env"
    config.write_text(f"OPENAI_API_KEY={KEY}\nurl=postgres://ada:s3cretpa55@db/x\n")
    playbook = f"""# %%
text = evidence["config.env"].text
print(text)
literal = "{KEY}"
# %%
found = predict("text -> key: str", text=text).key
DRAFT(answer=found)
note("discovery", text)
# %%
assert found == literal, (found, literal)
SUBMIT(answer=f"found {{found}}")
"""
    with ScriptedModel(lambda request, n: {"key": KEY}) as model:
        spec = a_spec(playbook=playbook, model=model.url, input_artifacts=(evidence_of(config),))
        ran = run_job(spec)
        cut = [record.kind for record in ran.gateway.records].index("draft_recorded") + 1
        again = MemoryGateway(spec)
        again.records = ran.gateway.records[:cut]
        attempt(again)
        asked = model.calls

    for gateway in (ran.gateway, again):
        written = "".join(record.model_dump_json() for record in gateway.records)
        assert KEY not in written + gateway.result.model_dump_json()
        assert "s3cretpa55" not in written
        assert Ran(gateway).output == {"answer": "found [redacted]"}
        assert asyncio.run(verify_replay(spec, gateway.records)).verified
    assert asked == 1
    assert Ran(again).of("diverged") == []


def test_the_usage_of_each_of_many_calls_at_once_is_its_own():
    def script(request, n):
        rows = json.dumps(request["messages"])
        content = json.dumps({"label": "x" * (1 + len(rows) % 37)})
        # The later a call was made, the sooner it is answered.
        return Answer(content, latency_seconds=0.001 * ((97 - n) % 23), usage=usage_of(request, content))

    playbook = """# %%
import asyncio, threading
rows = predict_batch("t -> label: str", [{"t": f"<row {i}>" + " pad" * i} for i in range(40)])
async def some():
    return await asyncio.gather(*(apredict("t -> label: str", t=f"<task {i}>" + " pad" * i) for i in range(20)))
tasks = await some()
got = []
threads = [threading.Thread(target=lambda i=i: got.append(predict("t -> label: str", t=f"<thread {i}>" + " pad" * i))) for i in range(20)]
[t.start() for t in threads]; [t.join() for t in threads]
SUBMIT(answer=str(len(rows) + len(tasks) + len(got)))
"""
    with ScriptedModel(script) as model:
        ran = run_job(a_spec(playbook=playbook, model=model.url))
        asked = [request for request in model.requests if schema_of(request) is not None]

    started = {event.ordinal: event for event in ran.of("subcall_started")}
    finished = ran.of("subcall_finished")
    assert ran.output == {"answer": "80"}
    assert len(finished) == len(asked) == len({event.key for event in finished}) == 80
    for event in finished:
        mark = started[event.ordinal].inputs["t"].partition(">")[0] + ">"
        (request,) = [one for one in asked if mark in json.dumps(one["messages"])]
        told = usage_of(request, json.dumps(event.value))
        assert (event.spend.input_tokens, event.spend.output_tokens) == (
            told["prompt_tokens"],
            told["completion_tokens"],
        )
    assert ran.result.usage.input_tokens == sum(event.spend.input_tokens for event in finished)
    assert ran.result.usage.output_tokens == sum(event.spend.output_tokens for event in finished)
